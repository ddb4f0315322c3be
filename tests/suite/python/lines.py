"""Prints the line tables of many code objects, and the line that Python itself has for each instruction.

Per code object one JSON line: first line, table (hexadecimal), [[byte offset, line or null], ...].
"""

import dis
import json
import os
import sys
import types

ROOT = os.path.dirname(os.__file__)
FILES = ["ast.py", "asyncio/tasks.py", "argparse.py", "contextlib.py", "dataclasses.py", "decimal.py", "difflib.py",
         "enum.py", "functools.py", "inspect.py", "json/decoder.py", "random.py", "subprocess.py", "tarfile.py",
         "threading.py", "typing.py", "unittest/mock.py", "_pydecimal.py"]
LONG = "def long():\n" + "".join("    x = 1\n" + "\n" * (step % 300) for step in range(3000)) + "    return (x,\n\n\n x)\n"


def codes(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


def lines(code):
    """The line of each instruction by the interpreter's own reading of the table."""
    if sys.version_info >= (3, 10):
        return [[offset, line] for start, end, line in code.co_lines() for offset in range(start, end, 2)]
    found, line = [], code.co_firstlineno
    starts = dict(dis.findlinestarts(code))
    for offset in range(0, len(code.co_code), 2):
        line = starts.get(offset, line)
        found.append([offset, line])
    return found


def main():
    texts = []
    for name in FILES:
        path = os.path.join(ROOT, name)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                texts.append((name, file.read()))
    for name, text in texts + [("long.py", LONG)]:
        for code in codes(compile(text, name, "exec")):
            table = code.co_linetable if sys.version_info >= (3, 10) else code.co_lnotab
            print(json.dumps([code.co_firstlineno, table.hex(), lines(code)]))


main()
