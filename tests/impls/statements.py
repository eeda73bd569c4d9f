"""The text of a compiled kernel, as PTX, taken apart."""

import re
from typing import NamedTuple

TOKEN = re.compile(
    r"\s*(?:(?P<skip>\.(?:loc|file)[^\n]*|\.pragma[^;]*;)|(?P<label>[\w$]+):(?!:)|(?P<open>\{)(?=\s*(?:\.reg|@|[a-z]+\.|\w+:))"
    r"|(?P<close>\})|(?P<statement>[^;{}]*(?:\{[^{}]*\}[^;{}]*)*;))"
)
OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^\s,]+")


class Statement(NamedTuple):
    """`scopes` are those around it, the innermost last: a label is looked for from there outwards."""

    guard: str | None
    inverted: bool
    opcode: tuple[str, ...]
    operands: list[str]
    scopes: tuple[int, ...]


class Text:
    """The statements of a text, its labels by scope, and the types of the registers that are declared in a scope."""

    def __init__(self, text):
        self.statements, self.labels, self.types = [], {}, {}
        scopes = [(0, {})]  # a number and the names declared in it
        text, at, scopes_seen = re.sub(r"//[^\n]*", "", text), 0, 0
        while text[at:].strip():
            found = TOKEN.match(text, at)
            assert found, f"no PTX: {text[at : at + 100]!r}"
            at = found.end()
            if found["label"]:
                self.labels[scopes[-1][0], found["label"]] = len(self.statements)
            elif found["open"]:
                scopes_seen += 1
                scopes.append((scopes_seen, {}))
            elif found["close"]:
                scopes.pop()
            elif found["statement"]:
                self._add(" ".join(found["statement"][:-1].split()), scopes)

    def _add(self, statement, scopes):
        number, own = scopes[-1]
        if statement.startswith(".reg"):
            _, kind, declared = statement.split(None, 2)
            for name, count in re.findall(r"([\w$]+)(?:<(\d+)>)?", declared) if number else ():
                names = [f"{name}{i}" for i in range(int(count))] if count else [name]
                own |= {each: f"{each}#{number}" for each in names}
                self.types |= {f"{each}#{number}": kind.removeprefix(".") for each in names}
        elif statement:
            named = {name: full for _, names in scopes for name, full in names.items()}
            guard, opcode, rest = re.fullmatch(r"(?:@(!?[%\w]+) )?([\w.:]+) ?(.*)", statement).groups()
            operands = [re.sub(r"[%\w$.]+", lambda m: named.get(m[0], m[0]), each) for each in OPERAND.findall(rest)]
            bare = (guard or "").lstrip("!")
            inverted, around = (guard or "").startswith("!"), tuple(number for number, _ in scopes)
            opcode = tuple(opcode.replace("::cta", "").split("."))  # a program's own shared memory, as Triton 3.8 says
            self.statements.append(Statement(named.get(bare, bare) or None, inverted, opcode, operands, around))


class Kernel(Text):
    """The statements of a kernel, and its parameters."""

    def __init__(self, ptx, name):
        head = ptx.index("(", ptx.index(f".entry {name}"))
        end = ptx.index(")", head)
        self.parameters = re.findall(r"\.param\s+\.(\w+)[^,]*?(\w+)\s*(?:,|$)", ptx[head + 1 : end])
        super().__init__(_braced(ptx, end))


def _braced(text, start):
    begin, depth = text.index("{", start), 0
    for at in range(begin, len(text)):
        depth += (text[at] == "{") - (text[at] == "}")
        if depth == 0:
            return text[begin + 1 : at]
    raise AssertionError("a brace is never closed")
