#!/usr/bin/env python3
"""Makes empty stand-ins for the CUDA libraries that PyTorch's wheel links, so that it can be imported on a machine without
them and without their two gigabytes: for jobs on the CPU.

    python cuda_stubs.py        in the environment that the wheel was installed into with --no-deps

The wheel binds lazily: it needs the libraries' names, their symbol versions and their data, and its functions only when
they are called. Each stand-in returns 100 ('no device'). Needs gcc and readelf. Libraries that are there are left alone.
"""

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict

VENDOR = re.compile(r"lib(cu|nv|nccl)[^/]*\.so")


def readelf(flag, path):
    return subprocess.run(["readelf", "-W", flag, path], check=True, capture_output=True, text=True).stdout


def wanted(folder, here):
    """Libraries that are missing: by name, what is wanted of them as (version, symbol, whether it is data)."""
    libraries = defaultdict(set)
    version_of, undefined, defined = {}, set(), set()
    for path in (os.path.join(folder, name) for name in sorted(here)):
        for name in re.findall(r"\(NEEDED\).*\[(.+)\]", readelf("-d", path)):
            if VENDOR.match(name) and name not in here:
                libraries[name]
        library = None
        for line in readelf("-V", path).splitlines():
            if found := re.search(r"File: (\S+)", line):
                library = found.group(1)
            elif library in libraries and (found := re.search(r"Name: (\S+)", line)):
                version_of[found.group(1)] = library
                libraries[library].add((found.group(1), None, False))
        for line in readelf("--dyn-syms", path).splitlines():
            cells = line.split()
            if len(cells) >= 8 and cells[0].endswith(":"):
                symbol, _, version = cells[7].partition("@")
                if cells[6] != "UND":
                    defined.add(symbol)
                else:
                    undefined.add((version.lstrip("@"), symbol, cells[3] == "OBJECT"))
    for version, symbol, is_data in undefined:
        if version in version_of:
            libraries[version_of[version]].add((version, symbol, is_data))
        elif not version and symbol not in defined and (library := named_like(symbol, libraries)):
            libraries[library].add((None, symbol, is_data))
    return libraries


def named_like(symbol, libraries):
    """The library that a symbol without a version is of, by its name: libcusparseLt for cusparseLtInit."""
    stems = {re.split(r"[._]", name.removeprefix("lib"))[0].lower(): name for name in libraries}
    fitting = [stem for stem in stems if symbol.lower().startswith(stem)]
    return stems[max(fitting, key=len)] if fitting else None


def build(path, entries):
    versions = defaultdict(list)
    source = []
    for version, symbol, is_data in sorted(entries, key=str):
        if version is not None:
            versions[version]
        if symbol is not None:
            if version is not None:
                versions[version].append(symbol)
            source.append(f"long {symbol}[64];" if is_data else f"int {symbol}(void) {{ return 100; }}")
    with tempfile.TemporaryDirectory() as folder:
        code, script = os.path.join(folder, "stub.c"), os.path.join(folder, "versions")
        with open(code, "w") as file:
            file.write("\n".join(source) + "\n")
        with open(script, "w") as file:
            for version, symbols in versions.items():
                file.write(f"{version} {{ {'global: ' + '; '.join(symbols) + ';' if symbols else ''} }};\n")
        command = ["gcc", "-shared", "-fPIC", "-w", "-fno-builtin", "-o", path, f"-Wl,-soname,{os.path.basename(path)}"]
        if versions:
            command.append(f"-Wl,--version-script={script}")
        subprocess.run([*command, code], check=True)


def main():
    torch = importlib.util.find_spec("torch")
    if torch is None:
        sys.exit("torch is not installed in this environment")
    folder = os.path.join(os.path.dirname(torch.origin), "lib")
    here = {name for name in os.listdir(folder) if name.startswith("lib") and ".so" in name}
    for name, entries in wanted(folder, here).items():
        build(os.path.join(folder, name), entries)
        print(f"{name}: {sum(symbol is not None for _, symbol, _ in entries)} symbols")


if __name__ == "__main__":
    main()
