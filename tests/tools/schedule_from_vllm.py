#!/usr/bin/env python3
"""schedule_from_vllm.py LOG [--tokens FILE] [--process NAME] >steps.jsonl: the batch schedule of a vLLM (V1) log for `driftscope storm --schedule`.

vLLM prints no step's batch by itself, but for the last one before a crash ("Dumping scheduler output for model execution"). A line
    logger.info("%s", scheduler_output)
at the head of the worker's execute_model prints every one; each must be on one line of the log. Read are, of SchedulerOutput(...):
the requests that are new (req_id, num_computed_tokens), those known (one CachedRequestData with lists, or, before 0.9.2, a list of
them; resumed ones) and num_scheduled_tokens. Requests get numbers in the order in which they appear. --tokens writes the prompts' ids
there, a line a request, where the log has them: `driftscope storm --tokens LINE1 --tokens LINE2 ...` takes as many.

Workers of one engine (tensor parallel) each print all steps, and are told apart by what vLLM puts before a line: "(Worker_TP1 pid=7)".
Where all of them have the same steps, one is taken; where not, as with several engines (data parallel), --process says which.
"""
import argparse
import json
import os
import re
import sys

NEW = re.compile(r"NewRequestData\(req_id=([^,]*),")
CACHED = re.compile(r"num_computed_tokens=(\d+)")
PROMPT = re.compile(r"prompt_token_ids=\[([0-9, ]*)\]")
KNOWN = re.compile(r"CachedRequestData\(req_ids=\[([^]]*)\]")
KNOWN_CACHED = re.compile(r"num_computed_tokens=\[([0-9, ]*)\]")
RESUMED = re.compile(r"resumed_req_ids=(?:\{|\[|set\(\{?)([^]})]*)")
RESUMED_FLAGS = re.compile(r"resumed_from_preemption=\[([^]]*)\]")
KNOWN_ONE = re.compile(r"CachedRequestData\(req_id=([^,]*),")
RESUMED_ONE = re.compile(r"resumed_from_preemption=([A-Za-z]+)")
SCHEDULED = re.compile(r"[( ,]num_scheduled_tokens=\{([^}]*)\}")
DRAFTS = re.compile(r"scheduled_spec_decode_tokens=\{[^}]")
PROCESS = re.compile(r"\(([A-Za-z][\w-]*(?: rank=\d+)? pid=\d+)\)")


class Mistake(Exception):
    pass


def names(text):
    return [x.strip().strip("'\"") for x in text.split(",") if x.strip()]


def read_new(text, cached, prompts):
    starts = [m.start() for m in NEW.finditer(text)] + [len(text)]
    for a, b in zip(starts, starts[1:]):
        name, had = names(NEW.match(text, a)[1])[0], CACHED.search(text, a, b)
        if not had:
            raise Mistake(f"new request {name} has no num_computed_tokens")
        cached[name] = int(had[1])
        ids = PROMPT.search(text, a, b)
        if ids:
            prompts[name] = [int(x) for x in names(ids[1])]


def read_lists(text, cached, resumed):
    """One CachedRequestData of all known requests."""
    listed = names(KNOWN.match(text)[1])
    if not listed:
        return
    had = KNOWN_CACHED.search(text)
    counts = names(had[1]) if had else []
    if len(counts) != len(listed):
        raise Mistake(f"{len(listed)} known requests, {len(counts)} of num_computed_tokens")
    cached.update(zip(listed, map(int, counts)))
    again, flags = RESUMED.search(text), RESUMED_FLAGS.search(text)
    if again:
        resumed.update(names(again[1]))
    elif flags:
        flags = names(flags[1])
        if len(flags) != len(listed):
            raise Mistake(f"{len(listed)} known requests, {len(flags)} of resumed_from_preemption")
        resumed.update(n for n, f in zip(listed, flags) if f.lower() == "true")


def read_each(text, cached, resumed):
    """A CachedRequestData for each known request."""
    starts = [m.start() for m in KNOWN_ONE.finditer(text)] + [len(text)]
    for a, b in zip(starts, starts[1:]):
        name, had = names(KNOWN_ONE.match(text, a)[1])[0], CACHED.search(text, a, b)
        again = RESUMED_ONE.search(text, a, b)
        if not had:
            raise Mistake(f"known request {name} has no num_computed_tokens")
        cached[name] = int(had[1])
        if again and again[1].lower() == "true":
            resumed.add(name)


def read_step(text):
    """[(request name, new, cached, begins)] of one SchedulerOutput, in the order of num_scheduled_tokens, and {name: prompt ids}."""
    cached, resumed, prompts = {}, set(), {}
    lists, each = KNOWN.search(text), KNOWN_ONE.search(text)
    known = lists or each
    read_new(text[: known.start()] if known else text, cached, prompts)
    begins = set(cached)
    if known:
        (read_lists if lists else read_each)(text[known.start() :], cached, resumed)
    if DRAFTS.search(text):
        raise Mistake("the step has drafts of speculative decoding, which a schedule cannot say")
    scheduled = SCHEDULED.search(text)
    if not scheduled:
        raise Mistake("no num_scheduled_tokens")
    step = []
    for pair in scheduled[1].split(","):
        if not pair.strip():
            continue
        name, _, new = pair.rpartition(":")
        name = names(name)[0]
        if name not in cached:
            raise Mistake(f"request {name} is scheduled, but neither new nor known")
        step.append((name, int(new), cached[name], name in begins or name in resumed))
    return step, prompts


def read_log(path):
    """{process: [step]} and {name: prompt ids}; the process is "" where lines do not say it."""
    processes, prompts = {}, {}
    with open(path, encoding="utf-8", errors="replace") as log:
        for number, line in enumerate(log, 1):
            at = line.find("SchedulerOutput(")
            if at < 0:
                continue
            try:
                step, ids = read_step(line[at:])
            except (Mistake, ValueError) as e:
                raise Mistake(f"{path}, line {number}: {e}")
            said = PROCESS.findall(line, 0, at)
            steps = processes.setdefault(said[-1] if said else "", [])
            if step:  # else nothing was scheduled
                steps.append(step)
            prompts.update(ids)
    processes = {p: steps for p, steps in processes.items() if steps}
    if not processes:
        raise Mistake(f"{path}: no line has a SchedulerOutput(...) that schedules anything")
    return processes, prompts


def choose(path, processes, wanted):
    if wanted is not None:
        if wanted not in processes:
            raise Mistake(f"{path}: no process '{wanted}'; it has {', '.join(repr(p) for p in processes)}")
        return processes[wanted]
    first, *others = processes
    for other in others:
        if processes[other] != processes[first]:
            raise Mistake(f"{path}: '{first}' and '{other}' have other steps: give one as --process")
    return processes[first]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log")
    parser.add_argument("--tokens")
    parser.add_argument("--process")
    args = parser.parse_args()
    processes, prompts = read_log(args.log)
    numbers = {}
    for step in choose(args.log, processes, args.process):
        batch = []
        for name, new, cached, begins in step:
            r = {"request": numbers.setdefault(name, len(numbers)), "new": new, "cached": cached}
            if begins:
                r["begins"] = True
            batch.append(r)
        print(json.dumps({"batch": batch}))
    if args.tokens:
        missing = [n for n in numbers if n not in prompts]
        if missing:
            raise Mistake(f"{args.log}: the log does not have the prompt of request {missing[0]}")
        with open(args.tokens, "w", encoding="utf-8") as f:
            for name in numbers:
                f.write(",".join(map(str, prompts[name])) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:  # whoever read it has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except (Mistake, OSError) as e:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(str(e))
