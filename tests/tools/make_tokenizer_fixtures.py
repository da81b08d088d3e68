#!/usr/bin/env python3
"""Makes tests/data/tokenizer/ again. Needs the PyPI packages gguf, llama-cpp-python, jinja2 and the real model's file.

    python3 tests/tools/make_tokenizer_fixtures.py SmolLM2-135M-Instruct.Q4_1.gguf [FOLDER]

Written into FOLDER (default tests/data/tokenizer):
  tokenizer_open.json       the strings it already holds, with the ids llama.cpp gives for the real model
  tokenizer_generated.json  the same for strings made here
  tiny_PRE.gguf             a vocabulary of about 900 tokens, one file per pre-tokenizer
  tiny_cases.txt            PRE, parse_special, text (hex), ids of llama.cpp with that vocabulary
  chat_cases.txt            chat template (hex), user message (hex), what jinja2 makes of them (hex)
The tests read these files; they need none of the packages.
"""
import json
import os
import random
import sys
from collections import Counter

PRES = ("smollm", "gpt-2", "default")
CONTROL, USER, UNKNOWN, NORMAL = 3, 4, 2, 1
SPECIALS = [("<|im_start|>", CONTROL), ("<|im_end|>", CONTROL), ("<|s|>", CONTROL), ("<|s|><|s|>", CONTROL), ("<unk>", UNKNOWN),
            ("|s|", USER), ("   \t", USER), ("UxU", USER), ("é-!", USER), ("-!<|im_", USER)]
# Bytes without a token of their own: a form feed, and the first byte of U+1000..U+1FFF.
MISSING_BYTES = (0x0C, 0xE1)


def spelling():
    """GPT-2's printable character for every byte."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table, free = {b: chr(b) for b in own}, 0x100
    for b in range(256):
        if b not in table:
            table[b], free = chr(free), free + 1
    return table


SPELL = spelling()

# ---- strings -------------------------------------------------------------------------------------------------------------

WORDS = ("the The quick brown don't I'M I'll you're THEY'VE it's 's 'S 't 're 'RE 've 'm 'll 'LL 'd l' '' ’s rock'n'roll "
         "hello World foo_bar camelCase HTTPServer straße naïve façade über мир Привет 日本語 中文 한국어 العربية עברית "
         "हिन्दी ไทย ελληνικά ქართული").split()
SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", " \n", "\n ", "\r", "\v", "\x85", "\xa0", "\u1680", "\u180e", "\u2003",
          "\u2028", "\u202f", "\u205f", "\u3000", "\u200b", "\ufeff", "\x1c", "\x1f", " " * 17]
DIGITS = ["0", "12", "123", "1234", "12345", "1234567890", "٣", "٤٥", "१२३", "²³", "½", "Ⅷ", "①", "１２", "𝟙𝟚", "3.14", "1,000", "-5",
          "0x1F", "1e-9", "1111", "19191919", "٣11111", "11٣"]
MARKS = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") + ["...", "--", "—", "“", "”", "«", "…", "==", "->", "</", "/*", "€", "©", "+=",
                                                     "$$", "|||", "^~", "🙂", "👍🏽", "👨‍👩‍👧", "🇳🇴", "#️⃣", "☃"]
COMBINING = ["\u0301", "\u0300", "\u0327", "\u0483", "\u0e31", "\u064b", "\u20dd", "\ufe0f"]
# Where Unicode versions and libraries differ: new letters, digits and punctuation of 15.0 and 15.1, unassigned, private.
DOUBTFUL = [0x180E, 0x11F04, 0x11F12, 0x11F43, 0x11F4F, 0x11F50, 0x11F59, 0x11B00, 0x11B09, 0x1E030, 0x1E4D0, 0x1E4F0, 0x1D2C0,
            0x2EBF0, 0x2EE5D, 0x31350, 0x323AF, 0x1DF25, 0x2B739, 0x378, 0xE000, 0x10FFFD, 0xFFFE, 0xFDD0, 0x1123F, 0x1342F,
            0x13441, 0x1B132, 0x1B155, 0x11F02]


def piece(rng):
    kind = rng.randrange(11)
    if kind == 0:
        return chr(rng.choice(DOUBTFUL))
    if kind == 1:
        return chr(rng.choice([rng.randrange(0x80, 0x3000), rng.randrange(0x3000, 0xD800), rng.randrange(0xE000, 0x20000)]))
    if kind == 2:
        return rng.choice(SPACES)
    if kind == 3:
        return rng.choice(DIGITS)
    if kind == 4:
        return rng.choice(MARKS)
    if kind == 5:
        return rng.choice(COMBINING)
    if kind == 6:
        return rng.choice(SPECIALS)[0] if rng.random() < 0.7 else " <|im_end|>" + rng.choice(SPACES)
    if kind == 7:
        return "".join(chr(rng.randrange(32, 127)) for _ in range(rng.randrange(1, 6)))
    return rng.choice(("", " ")) + rng.choice(WORDS)


def strings(seed, count):
    rng, out = random.Random(seed), []
    while len(out) < count:
        text = "".join(piece(rng) for _ in range(rng.randrange(1, 4) if rng.random() < 0.4 else rng.randrange(4, 16)))
        out.append(text.encode())
        if rng.random() < 0.04:  # bytes that are no characters; surrogates pass through
            out[-1] += rng.choice([b"\x80", b"\xff", b"\xe2\x82", b"\xc3", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf0\x9f\x99"]) + b"a"
    return out


# ---- the tiny vocabulary ---------------------------------------------------------------------------------------------------


def train(text, count):
    """Byte pair encoding's own training, on words that begin with a space."""
    words, merges = Counter(tuple(SPELL[b] for b in word.encode()) for word in text.replace(" ", "\0 ").split("\0")), []
    for _ in range(count):
        pairs = Counter()
        for word, n in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += n
        best = max(pairs, key=lambda p: (pairs[p], p))
        merges.append(best)
        merged = Counter()
        for word, n in words.items():
            new, i = [], 0
            while i < len(word):
                both = word[i:i + 2] == best
                new.append(word[i] + word[i + 1] if both else word[i])
                i += 2 if both else 1
            merged[tuple(new)] += n
        words = merged
    return merges


def tiny_vocabulary():
    merges = train(" ".join(WORDS * 3 + [w.lower() for w in WORDS]), 240)
    # Pairs that only join when no word border lies between: so the ids show every border.
    edge = [ord(c) for c in "aZ19!~$`' \t\n"]
    lead = [0xC2, 0xC3, 0xCC, 0xD0, 0xE0, 0xE2, 0xE3, 0xE4, 0xF0]
    borders = [(SPELL[a], SPELL[b]) for a in edge for b in edge + lead]
    # And a contraction that is not cut off as one shows itself.
    borders += [("'", c) for c in "s t m d re ve ll r v l".split()] + [("'r", "e"), ("'v", "e"), ("'l", "l")]
    random.Random(3).shuffle(borders)
    merges = merges + [m for m in borders if m not in merges]
    # A merge whose result is no token, and one that builds on it.
    merges += [("q", "z"), ("qz", "u")]
    tokens = [SPELL[b] for b in range(256) if b not in MISSING_BYTES]
    tokens += [a + b for a, b in merges if a + b != "qz"]
    tokens = list(dict.fromkeys(tokens))
    types = [NORMAL] * len(tokens) + [t for _, t in SPECIALS]
    return tokens + [s for s, _ in SPECIALS], types, [a + " " + b for a, b in merges]


def write_tiny(path, pre):
    import gguf
    tokens, types, merges = tiny_vocabulary()
    w = gguf.GGUFWriter(path, "llama")
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre(pre)
    w.add_token_list(tokens)
    w.add_token_types(types)
    w.add_token_merges(merges)
    w.add_bos_token_id(tokens.index("<|im_start|>"))
    w.add_eos_token_id(tokens.index("<|im_end|>"))
    w.add_add_bos_token(True)
    for add in (w.add_context_length, w.add_embedding_length, w.add_block_count, w.add_feed_forward_length, w.add_head_count):
        add(8)
    w.add_layer_norm_rms_eps(1e-5)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


# ---- the oracle: llama.cpp ---------------------------------------------------------------------------------------------------


class Oracle:
    def __init__(self, path):
        import llama_cpp
        self.lib, self.model = llama_cpp, llama_cpp.Llama(path, vocab_only=True, verbose=False)
        self.vocab = llama_cpp.llama_model_get_vocab(self.model.model)

    def ids(self, text, parse_special):
        room = len(text) * 3 + 8
        out = (self.lib.llama_token * room)()
        n = self.lib.llama_tokenize(self.vocab, text, len(text), out, room, True, parse_special)
        assert n >= 0
        return list(out[:n])

    def text(self, ids):
        return self.model.detokenize(ids, special=True)


def row(oracle, category, text):
    ids, parsed = oracle.ids(text, False), oracle.ids(text, True)
    try:
        shown = text.decode()
    except UnicodeDecodeError:
        shown = None
    return {"cat": category, "text": shown, "hex": text.hex(), "ids": ids, "ids_parse_special": parsed,
            "roundtrips": oracle.text(ids) == text}


def write_json(path, meta, rows):
    meta = {**meta, "n_strings": len(rows)}
    with open(path, "w", encoding="ascii") as f:
        f.write(json.dumps({"meta": meta, "rows": rows}, separators=(",", ":")))


def real_model(model, folder):
    oracle = Oracle(model)
    path = os.path.join(folder, "tokenizer_open.json")
    with open(path, encoding="ascii") as f:
        have = json.load(f)
    meta = {**have["meta"], "llama_cpp_python": oracle.lib.__version__}
    write_json(path, meta, [row(oracle, r["cat"], bytes.fromhex(r["hex"])) for r in have["rows"]])
    meta = {k: v for k, v in meta.items() if k != "llama_cpp_commit"}
    write_json(os.path.join(folder, "tokenizer_generated.json"), meta,
               [row(oracle, "generated", text) for text in strings(11, 400)])


def tiny_models(folder):
    with open(os.path.join(folder, "tiny_cases.txt"), "w", encoding="ascii") as f:
        f.write("# pre-tokenizer, parse_special, text, ids; made by tests/tools/make_tokenizer_fixtures.py with llama.cpp\n")
        for pre in PRES:
            path = os.path.join(folder, f"tiny_{pre}.gguf")
            write_tiny(path, pre)
            oracle = Oracle(path)
            fixed = ["", "qz", "qzu", "xqzqzu", "   \t1", "<|s|><|s|><|s|>", "a-!<|im_start|>", "~!~", "`!`", "!$!", "'s't'm'd're've'll"]
            fixed += [f"a{c}1{c}!{c}\t{c} {c}" for c in map(chr, DOUBTFUL)]
            for text in [t.encode() for t in fixed] + strings(7, 160):
                for parse in (0, 1):
                    ids = oracle.ids(text, bool(parse))
                    f.write(f"{pre} {parse} {text.hex() or '-'} {','.join(map(str, ids))}\n")


# ---- chat templates ----------------------------------------------------------------------------------------------------------

LOOP = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
TEMPLATES = [
    LOOP,
    "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}{% endif %}" + LOOP,
    '{%- if messages[0].role != "system" -%}{{- "<|im_start|>system\\nIt\'s \\"quoted\\", a \\\\ and a\\ttab.<|im_end|>\\n" -}}'
    "{%- endif -%}" + LOOP,
    # a system message that is there only when one is given: not a default
    "{% if messages[0]['role'] == 'system' %}{{ '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}{% endif %}"
    "{% for message in messages %}{% if message['role'] != 'system' %}{{ '<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>\\n' }}{% endif %}{% endfor %}{{ '<|im_start|>assistant\\n' }}",
    # given one first, default one second
    "{% if messages[0]['role'] == 'system' %}{{ '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}{% else %}"
    "{{ '<|im_start|>system\\nDefault.<|im_end|>\\n' }}{% endif %}{% for message in messages %}{% if message['role'] != 'system' %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}{% endif %}{% endfor %}"
    "{{ '<|im_start|>assistant\\n' }}",
    # plain template text, no strings
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nPlain text, it's \"here\".<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n{{ '' }}",
]
USERS = ["Hello!", "", "two\nlines\n", "it's \"quoted\" {{ not a template }} <|im_end|>"]


def chat(model, folder):
    import gguf
    import jinja2
    field = gguf.GGUFReader(model).fields["tokenizer.chat_template"].contents()
    # The settings that engines use for chat templates.
    env = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    with open(os.path.join(folder, "chat_cases.txt"), "w", encoding="ascii") as f:
        f.write("# template, user message, rendered; the first template is the real model's. All in hex, '-' is empty\n")
        for template in [field] + TEMPLATES:
            for user in USERS:
                text = env.from_string(template).render(messages=[{"role": "user", "content": user}], add_generation_prompt=True)
                f.write(" ".join(x.encode().hex() or "-" for x in (template, user, text)) + "\n")


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    folder = sys.argv[2] if len(sys.argv) == 3 else "tests/data/tokenizer"
    tiny_models(folder)
    real_model(sys.argv[1], folder)
    chat(sys.argv[1], folder)


if __name__ == "__main__":
    main()
