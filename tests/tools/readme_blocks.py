#!/usr/bin/env python3
"""readme_blocks.py DRIFTSCOPE PAGE [--only TEXT] [--write] [--list]: runs the commands of README, or of a page in docs, as a reader would, and holds what
they print against what stands there.

A block is indented; its commands begin with `$ ` (and go on behind a `\\`), what follows is their output, and `...` stands for lines
that are left out. All run one after the other in one shell, in a folder that is empty at first; stderr is shown where one fails. What a reader has to bring is made by `<!-- setup: COMMAND -->` above a block
($ROOT is the repository). `<!-- not run -->` above a block: it is left.
--only: blocks whose text has TEXT, and assignments of variables; --write: the output is written anew, with the same lines left out: read
the difference, since figures of speed are those of the moment; --errors: only exit code 2 is told. Exit code 1: something is told.
For developers: some blocks need the real model, minutes, and the BLAS core that the outputs come from.
"""
import argparse
import difflib
import os
import re
import shutil
import subprocess
import sys
import tempfile

parser = argparse.ArgumentParser()
parser.add_argument("driftscope")
parser.add_argument("readme")
parser.add_argument("--only", action="append", default=[])
parser.add_argument("--write", action="store_true")
parser.add_argument("--list", action="store_true")
parser.add_argument("--errors", action="store_true")
args = parser.parse_args()
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Command:
    """Lines [begin, end) of the file: the command, then its output."""

    def __init__(self, begin, indent):
        self.begin, self.indent, self.text, self.output_at, self.end = begin, indent, "", begin, begin
        self.setup = []


def commands_of(lines):
    found, setup, skip, i = [], [], False, 0
    while i < len(lines):
        mark = re.match(r" *<!-- (setup: (.*)|not run) -->$", lines[i])
        if mark:
            setup += [mark.group(2)] if mark.group(2) else []
            skip |= not mark.group(2)
        m = re.match(r"( {4,})\$ (.*)", lines[i])
        if not m:
            skip &= bool(mark) or not lines[i].strip() or lines[i].startswith("    ")
            i += 1
            continue
        c = Command(i, m.group(1))
        c.text, c.setup, setup = m.group(2), setup, []
        while c.text.endswith("\\"):
            i += 1
            c.text += "\n" + lines[i].strip()
        i += 1
        c.output_at = i
        # Its output ends at the next command, or where the indented text does.
        while i < len(lines) and (lines[i].startswith(c.indent) or not lines[i].strip()) and not lines[i].startswith(c.indent + "$ "):
            i += 1
        while i > c.output_at and not lines[i - 1].strip():
            i -= 1
        c.end = i
        if not skip:
            found.append(c)
    return found


def block_of(lines, c):
    begin, end = c.begin, c.end
    while begin and (lines[begin - 1].startswith("    ") or not lines[begin - 1].strip()):
        begin -= 1
    while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
        end += 1
    return "\n".join(lines[begin:end])


def run(shell, command):
    """The output of a command in the one shell."""
    shell.stdin.write(command + " 2>err || { [ $? -ne 2 ] || sed 's/^/ERROR: /' err; }\necho; echo END-OF-COMMAND\n")
    shell.stdin.flush()
    out = []
    for line in shell.stdout:
        if line == "END-OF-COMMAND\n":
            break
        out.append(line.rstrip())
    return out[:-1] if out and not out[-1] else out


def likeness(a, b):
    return difflib.SequenceMatcher(None, a, b, autojunk=False).ratio()


def place(shown, actual, first):
    """Where in actual, from first on, the shown lines stand: [begin, end)."""
    best, at = -1.0, first
    for begin in range(first, len(actual)):
        score = sum(likeness(s, a) for s, a in zip(shown[:3], actual[begin : begin + 3]))
        if score > best + 1e-9:
            best, at = score, begin
    end, least = at, -1.0
    for stop in range(at, len(actual)):
        score = sum(likeness(s, a) for s, a in zip(shown[-2:], actual[max(at, stop - min(2, len(shown)) + 1) : stop + 1]))
        score -= 0.02 * abs(stop - at + 1 - len(shown))
        if score > least + 1e-9:
            least, end = score, stop + 1
    return at, end


def renewed(shown, actual):
    """The actual lines, with those left out that are left out in shown."""
    parts, gaps, out, first = [[]], [], [], 0
    for line in shown:
        if line.strip() == "...":
            parts.append([])
            gaps.append(line)
        else:
            parts[-1].append(line)
    for k, part in enumerate(parts):
        out += gaps[k - 1 : k] if k else []
        if not part:
            continue
        begin, end = place(part, actual, first)
        if k == 0:
            begin = 0
        if k == len(parts) - 1:
            end = len(actual)
        out += actual[begin:end]
        first = end
    return out


lines = open(args.readme, encoding="utf-8").read().split("\n")
commands = commands_of(lines)
if args.list:
    for c in commands:
        print(f"{c.begin + 1}: {c.text}")
    sys.exit(0)
folder = tempfile.mkdtemp(prefix="driftscope-readme.")
# On the PATH, so that whatever a command starts finds it; and it calls itself what README calls it.
programs = tempfile.mkdtemp(prefix="driftscope-readme.")
with open(os.path.join(programs, "driftscope"), "w", encoding="utf-8") as f:
    f.write(f'#!/bin/bash\nexec -a driftscope {os.path.abspath(args.driftscope)!r} "$@"\n')
os.chmod(f.name, 0o755)
environment = dict(os.environ, ROOT=ROOT, LC_ALL="C.UTF-8", PATH=programs + ":" + os.environ.get("PATH", ""))
shell = subprocess.Popen(["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=folder, env=environment)
changes, failures = [], 0
for c in commands:
    for s in c.setup:
        run(shell, s)
    assigns = re.match(r"[A-Z]+=('[^']*'|\S*)$", c.text)
    if args.only and not assigns and not any(t in block_of(lines, c) for t in args.only):
        continue
    n = len(c.indent)
    shown = [line[n:] for line in lines[c.output_at : c.end]]
    actual = run(shell, c.text)
    failed = [line for line in actual if line.startswith("ERROR: ")]
    if failed or args.errors:
        if failed:
            print(f"{args.readme}:{c.begin + 1}: $ {c.text}\n" + "\n".join(failed))
            failures += 1
    elif shown and (new := renewed(shown, actual)) != shown:
        print(f"{args.readme}:{c.begin + 1}: $ {c.text}")
        print("\n".join(difflib.unified_diff(shown, new, "README", "now", lineterm="", n=0)))
        sys.stdout.flush()
        changes.append((c, [(c.indent + line).rstrip() for line in new]))
shell.stdin.close()
shell.wait()
shutil.rmtree(folder)
shutil.rmtree(programs)
if args.write:
    for c, new in reversed(changes):
        lines[c.output_at : c.end] = new
    with open(args.readme, "w", encoding="utf-8") as f:
        f.write("\n".join(lines))
sys.exit(1 if changes or failures else 0)
