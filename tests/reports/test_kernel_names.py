import pytest

from reports.kernel_names import LONGEST, display_names, shorten
from tests.reports.conftest import GOLDEN

AT = "void at::native::"
LAMBDA = "{lambda()#3}::operator()() const::{lambda(float)#1}"


def test_short_names_of_a_run_on_an_h200(golden):
    lines = (GOLDEN / "kernel_names.txt").read_text(encoding="utf-8").splitlines()
    names = [line[LONGEST + 2 :] for line in lines]
    golden("kernel_names.txt", "".join(f"{shorten(name):<{LONGEST}}  {name}\n" for name in names))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            f"{AT}reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float> > >(x)",
            "reduce_kernel mean",
        ),
        (f"{AT}vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)", "elementwise add"),
        (
            f"{AT}vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, b::MulFunctor<float> > >(x)",
            "elementwise mul",
        ),
        (f"{AT}unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(A&)::{LAMBDA}>(x)", "elementwise copy"),
        (
            f"{AT}elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<b::rsqrt_kernel_cuda(A&)> >(x)",
            "elementwise rsqrt",
        ),
        (f"{AT}vectorized_elementwise_kernel<4, a_lambda>(x)", "elementwise"),
        (f"{AT}(anonymous namespace)::CatArrayBatchedCopy<int>(x)", "CatArrayBatchedCopy"),
        ("void cudnn::bn_bw_1C11_kernel_new<float, 512, true>(x)", "bn_bw_1C11_kernel_new"),
        ("_ZN5cudnn3ops19some_kernel_forwardILi1EEEvPf", "some_kernel_forward"),
        ("_ZN2at6native55_GLOBAL__N__37e5c9c5_22_layer_norm_kernel_cu_37e5c9c5_15rows_of_momentsIfEEvPf", None),
        ("_Z6finishPfS_i", "finish"),
        ("Memcpy DtoD (Device -> Device)", "Memcpy DtoD (Device -> Device)"),
        ("kernel_cutlass_reduce_columns_tensorptrbf16gmem_0", "cutlass reduce_columns"),
        ("kernel_cutlass_kernel_otherNormBackward_object_at__tensor", "cutlass NormBackward"),
        ("a_name_of_our_own", "a_name_of_our_own"),
        ("a" * 40, "a" * 40),
        ("a" * 39 + "_0", "a" * 27 + "…" + "a" * 10 + "_0"),
    ],
)
def test_names_that_none_of_the_published_files_has(name, expected):
    assert len(shorten(name)) <= LONGEST
    assert expected is None or shorten(name) == expected


def test_equal_short_kernel_names_are_numbered():
    one, two = f"{AT}some<1>(x)", f"{AT}some<2>(x)"
    assert display_names([one, two, one, "finish"]) == ["some (1)", "some (2)", "some (1)", "finish"]
    assert display_names([one, one]) == ["some", "some"]
    long = [f"{AT}{'a' * 40}<{n}>(x)" for n in range(2)]
    assert display_names(long) == ["a" * 35 + "… (1)", "a" * 35 + "… (2)"]
