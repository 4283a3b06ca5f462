#!/usr/bin/env python3
"""Run every command of the README that needs nothing but the sources, and compare what it prints.

    check_readme.py [PROGRAM]

An indented line that starts with `build/onebit` (after `$ `, or behind a pipe) is an example. It must
end well; the lines after a `$ ` one are its output, in which numbers may differ in the sixth digit,
since the C library's functions do. Examples that name a file of the reader's are passed over.
"""
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOREIGN = ("model.gguf", "story.txt")
NUMBER = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")


def examples(text):
    """(command, expected lines or None) of each example."""
    lines = re.sub(r"\\\n\s*", "", text).split("\n")
    for i, line in enumerate(lines):
        if not line.startswith("    ") or "build/onebit" not in line:
            continue
        command = line.strip()
        if not command.startswith("$ "):
            yield command, None
            continue
        expected = []
        for after in lines[i + 1:]:
            if not after.startswith("    ") or after.strip().startswith("$ "):
                break
            expected.append(after.strip())
        yield command[2:], expected or None


def same(expected, got):
    """Equal but for the last digits of numbers with a fraction."""
    if NUMBER.sub("#", expected) != NUMBER.sub("#", got):
        return False
    pairs = zip(NUMBER.findall(expected), NUMBER.findall(got))
    return all(abs(float(a) - float(b)) <= 1e-5 * abs(float(a)) for a, b in pairs)


def run(command, folder):
    done = subprocess.run(["bash", "-c", "set -o pipefail; " + command], cwd=folder, text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=600)
    return done.returncode, done.stdout, done.stderr


def main():
    program = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else ROOT + "/build/onebit")
    with open(ROOT + "/README.md", encoding="utf-8") as file:
        found = list(examples(file.read()))
    mine = [e for e in found if not any(name in e[0] for name in FOREIGN)]
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in ("models", "tests", "README.md"):
            os.symlink(os.path.join(ROOT, name), os.path.join(folder, name))
        os.mkdir(folder + "/build")
        os.symlink(program, folder + "/build/onebit")
        for command, expected in mine:
            code, out, err = run(command, folder)
            if code != 0:
                print(f"{command}\n  exit status {code}: {err.strip()}")
                bad += 1
            elif expected and not same("\n".join(expected), out.strip()):
                print(f"{command}\n  README:  {expected}\n  program: {out.strip().splitlines()}")
                bad += 1
    compared = sum(1 for e in mine if e[1])
    print(f"{len(mine)} of {len(found)} examples run, {compared} of them compared, {bad} wrong")
    return 1 if bad or compared < 3 else 0


if __name__ == "__main__":
    sys.exit(main())
