#!/usr/bin/env python3
"""make_logprobs.py CAUSE[+CAUSE] FOLDER [--chat|--sglang|--llama] [--ids] [--batch] [--noise X] [--seed N]: FOLDER/a.jsonl and b.jsonl: responses of a toy model, and of the
same with one thing changed, with the log-probabilities of the best 6 tokens. The cause is true by construction.

A small recurrent network chooses the tokens of 14 requests (A, greedily); B scores the same tokens. Both get noise in
their hidden states, as rounding in other kernels makes it.
CAUSE: none, temperature, top-p, mask, presence, repetition, top-k, padding, weights, tf32, bf16-head, bf16-logprobs; of
the tokens: bos, prompt-bos, shift, tokens, prompt, other, shorter, ended.
"""
import json
import math
import random
import struct
import sys

V, D, LISTED, REQUESTS, LENGTH = 90, 12, 6, 14, 36
cause, folder = sys.argv[1], sys.argv[2]
causes = cause.split("+")
chat = "--chat" in sys.argv
noise = float(sys.argv[sys.argv.index("--noise") + 1]) if "--noise" in sys.argv else 1e-3
seed = int(sys.argv[sys.argv.index("--seed") + 1]) if "--seed" in sys.argv else 5
rng = random.Random(seed)


def matrix(rows, columns, size):
    return [[rng.gauss(0, size) for _ in range(columns)] for _ in range(rows)]


embed, inner, head = matrix(V, D, 1), matrix(D, D, 0.6 / math.sqrt(D)), matrix(V, D, 1.1)
# Another step of training: every weight of the head moves a little.
stale = [[w + rng.gauss(0, 0.03) for w in row] for row in head]


def rounded(x, mantissa):
    drop = 23 - mantissa
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    bits += (1 << drop - 1) - 1 + (bits >> drop & 1)
    return struct.unpack("<f", struct.pack("<I", bits >> drop << drop & 0xFFFFFFFF))[0]


def bf16(x):
    return rounded(x, 7)


short = [[rounded(w, 10) for w in row] for row in head]


def times(m, v):
    return [sum(w * x for w, x in zip(row, v)) for row in m]


def log_softmax(logits):
    top = max(logits)
    lse = top + math.log(sum(math.exp(x - top) for x in logits))
    return [x - lse for x in logits]


class Run:
    """The logits after each token; noise as of one system."""

    def __init__(self, weights, seed):
        self.h, self.weights, self.rng = [0.0] * D, weights, random.Random(seed)

    def feed(self, token):
        self.h = [math.tanh(a + b) + self.rng.gauss(0, noise) for a, b in zip(embed[token], times(inner, self.h))]
        return times(self.weights, self.h)


def change(logits, before):
    """What B does to its logits, and how many alternatives it then lists."""
    out, listed = list(logits), LISTED
    if "temperature" in causes:
        out = [x / 0.7 for x in out]
    if "bf16-head" in causes:
        out = [bf16(x) for x in out]
    if "presence" in causes:
        out = [x - 0.4 if t in before else x for t, x in enumerate(out)]
    if "repetition" in causes:
        out = [(x / 1.2 if x > 0 else x * 1.2) if t in before else x for t, x in enumerate(out)]
    order = sorted(range(V), key=lambda t: -out[t])
    if "top-p" in causes:
        p, total, kept = [math.exp(x) for x in log_softmax(out)], 0.0, set()
        for t in order:
            if total < 0.8:
                kept.add(t)
            total += p[t]
        listed = min(len(kept), 40)
        out = [x if t in kept else -1e9 for t, x in enumerate(out)]
    if "mask" in causes:
        kept = set(order[:3])
        out = [x if t in kept else -math.inf for t, x in enumerate(out)]
    if "top-k" in causes:
        kept = set(order[:LISTED])
        out = [x if t in kept else -1e9 for t, x in enumerate(out)]
    values = log_softmax(out)
    return ([bf16(x) for x in values] if "bf16-logprobs" in causes else values), listed


def name(t):
    return f" w{t}"


def entry(t, values, listed):
    best = sorted(range(V), key=lambda i: (-values[i], i))[:listed]
    return {"token": name(t), "id": t, "logprob": values[t], "top": {name(i): values[i] for i in best}}


def make(request):
    prompt = [rng.randrange(V) for _ in range(5)]
    a, b = Run(head, 999 * seed + 2 * request), Run(stale if "weights" in causes else short if "tf32" in causes else head, 999 * seed + 2 * request + 1)
    for t in prompt:
        logits_a, logits_b = a.feed(t), b.feed(t)
    side_a, side_b, before = [], [], set()
    for _ in range(LENGTH):
        values_a = log_softmax(logits_a)
        values_b, listed = change(logits_b, before)
        t = max(range(V), key=lambda i: values_a[i])
        if rng.random() < 0.4: # now and then not the best one, so that texts do not run in circles
            t = sorted(range(V), key=lambda i: -values_a[i])[rng.randrange(1, 4)]
        side_a.append(entry(t, values_a, LISTED))
        side_b.append(entry(t, values_b, listed))
        before.add(t)
        logits_a, logits_b = a.feed(t), b.feed(t)
    return prompt, side_a, side_b


def spoil(request, prompt, side):
    """B's tokens, where they are what is wrong."""
    bos = {"token": "<s>", "id": 1000, "logprob": None, "top": {}}
    if "bos" in causes:
        return prompt, [bos] + side
    if "prompt-bos" in causes:
        return [1000] + prompt, side
    if "shift" in causes:
        return prompt, side[2:]
    if "prompt" in causes and request % 2:
        return prompt[:3] + [V] + prompt[4:], side
    if "shorter" in causes or "ended" in causes:
        return prompt, side[:10]
    if "tokens" in causes: # " w12" as " w" and "12"
        cut = side[4]
        parts = [dict(cut, token=" w", id=2000), dict(cut, token=cut["token"][2:], id=2001)]
        return prompt, side[:4] + parts + side[5:]
    if "other" in causes:
        return prompt, side[:9] + [dict(side[9], token=" other", id=V + 1)] + side[10:]
    if "padding" in causes:
        return prompt, side[:-(1 + request % 4)] + [dict(e, logprob=0.0, top={}) for e in side[-(1 + request % 4):]]
    return prompt, side


def response(request, prompt, side):
    finite = lambda x: -9999.0 if x is not None and x < -9999 else x
    ended = "ended" in causes and len(side) == 10
    best = lambda e: sorted(e["top"].items(), key=lambda x: -x[1])
    if "--sglang" in sys.argv: # texts are null unless they are asked for
        info = {"id": f"{rng.randrange(10 ** 9):x}", "finish_reason": {"type": "stop" if ended else "length"},
                "output_token_logprobs": [[e["logprob"], e["id"], None] for e in side],
                "output_top_logprobs": [[[x, int(t[2:]), None] for t, x in best(e)] for e in side]}
        return {"text": "".join(e["token"] for e in side), "output_ids": [e["id"] for e in side], "meta_info": info}
    if "--llama" in sys.argv:
        entry = lambda t, i, x: {"id": i, "token": t, "bytes": list(t.encode()), "logprob": finite(x)}
        return {"content": "".join(e["token"] for e in side), "tokens": [], "stop": True, "stop_type": "eos" if ended else "limit",
                "completion_probabilities": [dict(entry(e["token"], e["id"], e["logprob"]),
                                                  top_logprobs=[entry(t, int(t[2:]), x) for t, x in best(e)]) for e in side]}
    if chat:
        content = [{"token": e["token"], "logprob": finite(e["logprob"]), "bytes": list(e["token"].encode()),
                    "top_logprobs": [{"token": t, "logprob": finite(x), "bytes": list(t.encode())} for t, x in e["top"].items()]}
                   for e in side]
        choice = {"index": 0, "message": {"role": "assistant"}, "logprobs": {"content": content}}
    else:
        # As Python writes them: -Infinity is no JSON.
        choice = {"index": 0, "text": "".join(e["token"] for e in side),
                  "logprobs": {"tokens": [e["token"] for e in side], "token_logprobs": [e["logprob"] for e in side],
                               "top_logprobs": [e["top"] for e in side]}}
    choice["finish_reason"] = "stop" if ended else "length"
    if "--ids" in sys.argv:
        choice["token_ids"] = [e["id"] for e in side]
    return {"id": f"cmpl-{rng.randrange(10 ** 9)}", "object": "response", "prompt_token_ids": prompt, "choices": [choice]}


with open(f"{folder}/a.jsonl", "w", encoding="utf-8") as fa, open(f"{folder}/b.jsonl", "w", encoding="utf-8") as fb:
    for r in range(REQUESTS):
        p, sa, sb = make(r)
        pb, sb = spoil(r, p, sb)
        for f, ids, side in ((fa, p, sa), (fb, pb, sb)):
            line = response(r, ids, side)
            if "--batch" in sys.argv:
                line = {"id": "batch_req", "custom_id": f"request-{r}", "response": {"status_code": 200, "body": line}}
            f.write(json.dumps(line) + "\n")
