"""NVML as far as it is read; an attribute that is not here would be a query, or a change, nobody allowed."""

from types import SimpleNamespace


class FakeNvml:
    """One card that answers, of `count`; `bits` are its throttle reasons, `pids` the processes that hold a context.

    `refused` names queries that raise, as in a container.
    """

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self, uuid="GPU-1234", count=8, bits=0, pids=(), refused=()):
        self.uuid, self.count, self.bits, self.pids = uuid, count, bits, pids
        for query in refused:
            setattr(self, query, self._refuse)

    def _refuse(self, *arguments):
        raise RuntimeError("not supported")

    def nvmlInit(self):
        pass

    def nvmlSystemGetDriverVersion(self):
        return "580.1"

    def nvmlDeviceGetCount(self):
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index):
        return f"card {index}"

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if uuid != self.uuid:
            raise RuntimeError("not found")
        return "card 5"

    def nvmlDeviceGetClockInfo(self, handle, clock):
        return {1: 1980, 2: 3201}[clock]

    def nvmlDeviceGetPowerUsage(self, handle):
        return 412_345

    def nvmlDeviceGetTemperature(self, handle, sensor):
        return {0: 61}[sensor]

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle):
        return self.bits

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        return [SimpleNamespace(pid=pid) for pid in self.pids]

    def nvmlDeviceGetEnforcedPowerLimit(self, handle):
        return 700_000
