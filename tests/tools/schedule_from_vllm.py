#!/usr/bin/env python3
"""schedule_from_vllm.py LOG [--tokens FILE] >steps.jsonl: the batch schedule of a vLLM (V1) log for `driftscope storm --schedule`.

vLLM prints no step's batch by itself, but for the last one before a crash ("Dumping scheduler output for model execution"). A line
    logger.info("%s", scheduler_output)
at the head of the worker's execute_model prints every one; each must be on one line of the log. Read are, of SchedulerOutput(...):
the requests that are new (req_id, num_computed_tokens), those known (req_ids, num_computed_tokens, resumed ones) and
num_scheduled_tokens. Requests get numbers in the order in which they appear. --tokens writes the prompts' ids there, a line a
request, where the log has them: `driftscope storm --tokens LINE1 --tokens LINE2 ...` takes as many.
"""
import argparse
import json
import re
import sys

NEW = re.compile(r"NewRequestData\(req_id=([^,]*),")
CACHED = re.compile(r"num_computed_tokens=(\d+)")
PROMPT = re.compile(r"prompt_token_ids=\[([0-9, ]*)\]")
KNOWN = re.compile(r"CachedRequestData\(req_ids=\[([^]]*)\]")
KNOWN_CACHED = re.compile(r"num_computed_tokens=\[([0-9, ]*)\]")
RESUMED = re.compile(r"resumed_req_ids=(?:\{|\[|set\(\{?)([^]})]*)")
SCHEDULED = re.compile(r"[( ,]num_scheduled_tokens=\{([^}]*)\}")
DRAFTS = re.compile(r"scheduled_spec_decode_tokens=\{[^}]")


class Mistake(Exception):
    pass


def names(text):
    return [x.strip().strip("'\"") for x in text.split(",") if x.strip()]


def read_step(text):
    """[(request name, new, cached, begins)] of one SchedulerOutput, in the order of num_scheduled_tokens, and {name: prompt ids}."""
    cached, resumed, prompts = {}, set(), {}
    known = KNOWN.search(text)
    head = text[: known.start()] if known else text
    starts = [m.start() for m in NEW.finditer(head)] + [len(head)]
    for a, b in zip(starts, starts[1:]):
        name, had = names(NEW.match(head, a)[1])[0], CACHED.search(head, a, b)
        if not had:
            raise Mistake(f"new request {name} has no num_computed_tokens")
        cached[name] = int(had[1])
        ids = PROMPT.search(head, a, b)
        if ids:
            prompts[name] = [int(x) for x in names(ids[1])]
    begins = set(cached)
    if known and names(known[1]):
        had = KNOWN_CACHED.search(text, known.end())
        counts = names(had[1]) if had else []
        if len(counts) != len(names(known[1])):
            raise Mistake(f"{len(names(known[1]))} known requests, {len(counts)} of num_computed_tokens")
        cached.update(zip(names(known[1]), map(int, counts)))
        again = RESUMED.search(text, known.end())
        resumed = set(names(again[1])) if again else set()
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log")
    parser.add_argument("--tokens")
    args = parser.parse_args()
    numbers, prompts, steps = {}, {}, 0
    with open(args.log, encoding="utf-8", errors="replace") as log:
        for number, line in enumerate(log, 1):
            at = line.find("SchedulerOutput(")
            if at < 0:
                continue
            try:
                step, ids = read_step(line[at:])
            except (Mistake, ValueError) as e:
                sys.exit(f"{args.log}, line {number}: {e}")
            if not step:
                continue  # nothing was scheduled
            batch = []
            for name, new, cached, begins in step:
                r = {"request": numbers.setdefault(name, len(numbers)), "new": new, "cached": cached}
                if begins:
                    r["begins"] = True
                batch.append(r)
            prompts.update(ids)
            print(json.dumps({"batch": batch}))
            steps += 1
    if steps == 0:
        sys.exit(f"{args.log}: no line has a SchedulerOutput(...)")
    if args.tokens:
        missing = [n for n in numbers if n not in prompts]
        if missing:
            sys.exit(f"{args.log}: the log does not have the prompt of request {missing[0]}")
        with open(args.tokens, "w", encoding="utf-8") as f:
            for name in numbers:
                f.write(",".join(map(str, prompts[name])) + "\n")


if __name__ == "__main__":
    main()
