# SPDX-License-Identifier: Apache-2.0
"""token_cases.py - texts and tokenizers for test_tokens.py.

texts(): real sentences (stsb in eight languages and Cranfield, when FLETCH_TEST_DATA has them) and texts
made to be hostile, with a fixed seed. variants(): tokenizer.json files built with the reference's own
package from the default model's vocabulary, each with something that implementations get wrong.
"""
import base64
import json
import os
import pathlib
import random
import struct
import unicodedata

SPECIALS = ["[CLS]", "[SEP]", "[MASK]", "[PAD]", "[UNK]", "<s>", "</s>", "<mask>", "<pad>"]
SPACES = [" ", "\t", "\n", "\r", "\x0b", "\x0c", "\x1c", "\x1f", "\x85", "\xa0", "\u1680", "\u2000",
          "\u2007", "\u2009", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\u180e", "\u200b"]
ODD = ["\x00", "\x01", "\x7f", "\x9f", "\xad", "\u0600", "\u08e2", "\u200b", "\u200c", "\u200d", "\u200e",
       "\u202a", "\u2060", "\ufeff", "\ufffd", "\ufff9", "\ue000", "\U000f0000", "\U000e0041", "\u0378"]
MARKS = ["\u0300", "\u0301", "\u0308", "\u0323", "\u0327", "\u0334", "\u0345", "\u0344", "\u0340", "\u05b0",
         "\u05bc", "\u064b", "\u0651", "\u093c", "\u094d", "\u09bc", "\u0e38", "\u0f71", "\u0f73", "\u0f74",
         "\u302a", "\u302e", "\u302f", "\u3099", "\u20d0", "\u1dfa", "\u08d4", "\U00016ff0", "\U0001d165",
         "\U0001d16d", "\U0001e8d0", "\u1ace", "\u0488", "\u0903", "\u093e"]
STARTERS = list("aeiounAEIOUN#.!'- 日本語ᄀ가각한한글кЙёæßﬁİıſΣσςÅｱｶﾞ½²①€£©") + [
    "\u212b", "\u2126", "\u00c5", "\u1e69", "\u1f82", "\ufb1d", "\ufb2c", "\u0958", "\u09cb", "\u0dde",
    "\u1100\u1161\u11a8", "\ufa10", "\U0002f800", "\U0001d15e", "\u2260", "\u037e", "\u0387", "\u1fef",
    "\u0390", "\u03b0", "\u1b06", "\U0001109a", "\u2adc", "\u226e"]
EMOJI = ["👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "👍🏽", "❤️", "☺", "1️⃣", "🤷🏿‍♂️", "🧑‍🚀", "©️", "™"]
SYMBOLS = list("$+<=>^`|~.,;:!?\"'()[]{}#%&*-/@\\_§¶·‧‿〰£€°™×÷—–…“”‘’«»¿¡、。「」！？，：；％＃\u2e42\u2e43")


def code_points():
    """Every code point that a text may hold. In make check, of the planes behind the second only what Unicode has tables for,
    where its categories change, and every 31st of the rest, which are ideographs, private or nothing; all in make check-full."""
    every = [point for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    if "FLETCH_TEST_FULL" not in os.environ:
        category = unicodedata.category
        every = [point for point in every if point < 0x20000 or point % 31 == 0 or 0x2F800 <= point < 0x2FA20
                 or 0xE0000 <= point < 0xE1000 or category(chr(point)) != category(chr(point - 1))
                 or point < 0x10FFFF and category(chr(point)) != category(chr(point + 1))]
    return [chr(point) for point in every]


def some(texts, step):
    """One text in `step`; all of them in make check-full. For what another test has on all texts in a plainer form."""
    return texts if "FLETCH_TEST_FULL" in os.environ else texts[::step]


def rounds(count):
    """How many texts of chance: a third of them in make check."""
    return count if "FLETCH_TEST_FULL" in os.environ else count // 3


def part(text):
    """The first tenth of a text that repeats itself; all of it in make check-full. What is quadratic is seen in either."""
    return text if "FLETCH_TEST_FULL" in os.environ else text[:len(text) // 10]


def word_list(vocab):
    words = [token for token in vocab if not token.startswith(("##", "["))]
    words.sort(key=vocab.get)
    return words


class Maker:
    """Hostile texts from a fixed seed."""

    def __init__(self, vocab, seed=20240229):
        self.random = random.Random(seed)
        self.words = word_list(vocab)
        self.pieces = [token[2:] for token in sorted(vocab, key=vocab.get) if token.startswith("##")]

    def any_character(self):
        while True:
            plane = self.random.choice([0, 0, 0, 0, 1, 1, 2, 3, 14, 15, 16])
            point = plane * 0x10000 + self.random.randrange(0x10000)
            if not 0xD800 <= point < 0xE000:
                return chr(point)

    def low_character(self):
        point = self.random.randrange(1, 0x3400)
        return chr(point)

    def random_points(self):
        return "".join(self.any_character() for _ in range(self.random.randrange(1, 40)))

    def low_points(self):
        return "".join(self.low_character() for _ in range(self.random.randrange(1, 60)))

    def mixed_words(self):
        pick = self.random
        out = []
        for _ in range(pick.randrange(1, 30)):
            kind = pick.random()
            word = pick.choice(self.words)
            if kind < 0.3:
                word = word.upper() if pick.random() < 0.5 else word.title()
            elif kind < 0.5:
                word += pick.choice(self.pieces) + pick.choice(self.pieces)
            elif kind < 0.6:
                place = pick.randrange(len(word) + 1)
                word = word[:place] + pick.choice(ODD + MARKS + SPACES) + word[place:]
            elif kind < 0.7:
                word = unicodedata.normalize(pick.choice(["NFD", "NFC", "NFKC"]),
                                             "".join(pick.choice(STARTERS) for _ in range(5)))
            elif kind < 0.8:
                word = pick.choice(EMOJI + SYMBOLS + SPECIALS)
            out.append(word)
            out.append(pick.choice(SPACES + [" "] * 30 + ["", "", ""] + SYMBOLS))
        return "".join(out)

    def marks(self):
        pick = self.random
        out = []
        for _ in range(pick.randrange(1, 14)):
            out.append(pick.choice(STARTERS + [""]))
            out.extend(pick.choice(MARKS + MARKS + ODD) for _ in range(pick.randrange(0, 6)))
        return "".join(out)

    def special_soup(self):
        pick = self.random
        parts = SPECIALS + ["[sep]", "[CL", "S]", "[[SEP]]", "<", ">", "<mask", " ", "  ", "\t", "\u3000",
                            "a", "é", "_", ".", "日", "ing", "abc", "xabc", "bc", "New York", "new york",
                            "TOKEN", "token", "Straße", "[S\u200bEP]", "\x0b", "\u0301", "ÉCOLE", "école", "Ġ"]
        return "".join(pick.choice(parts) for _ in range(pick.randrange(1, 24)))

    def ascii_noise(self):
        return "".join(chr(self.random.randrange(0 if self.random.random() < 0.1 else 32, 128))
                       for _ in range(self.random.randrange(1, 120)))

    def long_words(self):
        pick = self.random
        unit = pick.choice(["a", "ab", "é", "é", "日", "한", "#", "un", "\u0301", "a\u0323\u0301", "\u302e\u302f",
                            "İ", "x\u200b"])
        return pick.choice(["", "x ", "é "]) + unit * pick.choice([1, 15, 16, 33, 50, 99, 100, 101, 102, 2000]) + \
            pick.choice(["", " y", ".", "\u3000z"])

    def texts(self, count):
        kinds = [self.random_points, self.low_points, self.mixed_words, self.mixed_words, self.marks,
                 self.special_soup, self.ascii_noise, self.long_words]
        return [kinds[i % len(kinds)]() for i in range(count)]


FIXED = [
    "", " ", "   ", "\n", "\x00", "\u0301", "[SEP]", "a", ".", "[", "a\x0bb", "x\0y\uFFFDz",
    "soft\u00ADhyphen zw\u200Dj \uFEFFbom", "Héllò Ångström İstanbul ΟΔΥΣΣΕΥΣ ẞ ﬁ", "İstanbul É", "한국어",
    "日本語のテスト", "a\U0002B820b a\U0002B920b", "$100 a+b=c €5 ©2020 ½", "don't a\u2E43b a\u2E42b", "क्षि",
    "a" * 100, "a" * 101, "unaffz", "##able", "a [SEP] b [sep] a[MASK]b", "[S\u200BEP]", "[cls] [CLS]",
    "dancing ing _ing ing. éing", "a   <mask> now", "xabc abc bc", "<a>   <b>", "UNwant\u00E9d,running",
    "I'll don't 'S it’s", "Hello  world   x ", "x\u00A0y", "  <mask>\t ", "<mask> <mask>", "Ġa Ġ",
    "a\u0301\0\u0316b", ".\u0301b", "a.\0b", "a\0.b", "q\u0307\u0323", "\u0344\u0316", "a" * 50000,
    "\u0301" * 5000, "a" + "\u0323\u0301" * 3000, "\u302e\u302f" * 60, "é" * 100, "é" * 101,
    "\u1100" * 100, "word " * 3000, "word\n" * 3000 + "[SEP]" * 50, "日" * 5000, "[" * 3000,
    "x" * 4095 + " y", "x" * 4096 + " y", "x" * 4097 + "é y", "ab " * 1365 + "cd", "é " * 3000,
    "a\u0301" * 30000,
]


def read_shared(folder):
    """Sentences and abstracts of the shared data; none when the folder is not there."""
    found = []
    for path in sorted(pathlib.Path(folder).glob("*.jsonl")):
        with open(path, encoding="utf-8") as file:
            for line in file:
                item = json.loads(line)
                found.extend(item[key] for key in ("a", "b", "text") if item.get(key))
    return found


def spread(found, count):
    """`count` of the texts, evenly over all files."""
    step = max(1, len(found) // count)
    return found[::step][:count]


def minilm_like(package, vocab, normalizer, template=("[CLS]", "[SEP]"), added=(), **model):
    """A tokenizer like the default model's, with parts exchanged."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]", **model))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    for token in added:
        text, flags = token
        tokenizer.add_tokens([AddedToken(text, **flags)]) if not flags.get("special") else \
            tokenizer.add_special_tokens([AddedToken(text, **flags)])
    if template is not None:
        first, last = template
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{first} $A {last}", pair=f"{first} $A {last} $B:1 {last}:1",
            special_tokens=[(name, tokenizer.token_to_id(name)) for name in dict.fromkeys(template)])
    return tokenizer


def mpnet_vocab(vocab):
    """The vocabulary as all-mpnet-base-v2 has it: four tokens of RoBERTa in front, <mask> at the end."""
    words = sorted(vocab, key=vocab.get)
    return {word: i for i, word in enumerate(["<s>", "<pad>", "</s>", "<unk>"] + words + ["<mask>"])}


def variants(vocab):
    """{name: tokenizer} made with the reference's package."""
    from tokenizers import AddedToken, decoders, normalizers as n, pre_tokenizers as p, processors
    bert = n.BertNormalizer
    made = {}
    made["cased"] = minilm_like(None, vocab, bert(lowercase=False))
    made["cased_stripped"] = minilm_like(None, vocab, bert(lowercase=False, strip_accents=True))
    made["accents_kept"] = minilm_like(None, vocab, bert(lowercase=True, strip_accents=False))
    made["no_chinese"] = minilm_like(None, vocab, bert(handle_chinese_chars=False))
    made["not_cleaned"] = minilm_like(None, vocab, bert(clean_text=False))
    made["nothing_set"] = minilm_like(None, vocab, bert(False, False, False, False))
    made["no_normalizer"] = minilm_like(None, vocab, None)
    made["no_pre_tokenizer"] = minilm_like(None, vocab, bert())
    made["no_pre_tokenizer"].pre_tokenizer = None
    made["whitespace"] = minilm_like(None, vocab, bert())
    made["whitespace"].pre_tokenizer = p.Whitespace()
    made["whitespace_split"] = minilm_like(None, vocab, bert())
    made["whitespace_split"].pre_tokenizer = p.WhitespaceSplit()
    made["pre_sequence"] = minilm_like(None, vocab, bert())
    made["pre_sequence"].pre_tokenizer = p.Sequence([p.WhitespaceSplit(), p.Whitespace(), p.BertPreTokenizer()])
    steps = {
        "lowercase": [n.Lowercase()],
        "nfd": [n.NFD()],
        "nfd_strip": [n.NFD(), n.StripAccents(), n.Lowercase()],
        "strip_accents": [n.StripAccents()],
        "strip": [n.Strip()],
        "strip_left": [n.Strip(left=True, right=False), n.Lowercase()],
        "strip_right": [n.Strip(left=False, right=True)],
        "replace": [n.Replace("a", "ab "), n.Replace("ing", ""), n.Replace(" ", "_日_"), n.Lowercase()],
        "prepend": [n.Prepend("x\u0301y"), bert()],
        "chain": [n.Replace("e", "É\u0323"), bert(strip_accents=False), n.NFD(), n.Prepend("ß"), n.Lowercase(),
                  n.StripAccents(), n.Strip()],
    }
    for name, parts in steps.items():
        made["norm_" + name] = minilm_like(None, vocab, n.Sequence(parts) if len(parts) > 1 else parts[0])
    flags = [
        ("ing", dict(single_word=True, normalized=False)), ("abc", dict(single_word=True, normalized=False)),
        ("bc", dict(normalized=False)), ("<mask>", dict(lstrip=True, normalized=False, special=True)),
        ("<s>", dict(rstrip=True, normalized=False)), ("</s>", dict(lstrip=True, rstrip=True, normalized=False)),
        ("日", dict(normalized=False, single_word=True)), ("New York", dict(normalized=False, lstrip=True)),
        ("é", dict(normalized=False, lstrip=True, single_word=True)), ("<pad>", dict(normalized=False, special=True)),
    ]
    made["added_raw"] = minilm_like(None, vocab, bert(), added=flags)
    made["added_raw_cased"] = minilm_like(None, vocab, bert(lowercase=False), added=flags)
    made["added_roberta"] = minilm_like(None, vocab, None, added=flags + [("Ġa", {"normalized": False}),
                                                                         (" x ", {"normalized": False})])
    for prefix in (True, False):
        other = minilm_like(None, vocab, bert(lowercase=False), added=flags)
        other.pre_tokenizer = p.WhitespaceSplit()
        other.post_processor = processors.RobertaProcessing(("[SEP]", 102), ("[CLS]", 101), trim_offsets=True,
                                                            add_prefix_space=prefix)
        made[f"roberta_{prefix}".lower()] = other
    made["roberta_untrimmed"] = minilm_like(None, vocab, bert(), added=flags)
    made["roberta_untrimmed"].post_processor = processors.RobertaProcessing(
        ("[SEP]", 102), ("[CLS]", 101), trim_offsets=False, add_prefix_space=False)
    made["bert_processing"] = minilm_like(None, vocab, bert())
    made["bert_processing"].post_processor = processors.BertProcessing(("[SEP]", 102), ("[CLS]", 101))
    normalized = [
        ("[CLS]x", dict(normalized=True)), ("Straße", dict(normalized=True, single_word=True)),
        ("ÉCOLE", dict(normalized=True, lstrip=True)), ("TOKEN", dict(normalized=True, rstrip=True, special=True)),
        ("日", dict(normalized=True, lstrip=True, rstrip=True)), ("ing", dict(normalized=True, single_word=True)),
        ("New York", dict(normalized=True)), ("<mask>", dict(normalized=False, lstrip=True, special=True)),
        (" a ", dict(normalized=True)),
    ]
    made["added_normalized"] = minilm_like(None, vocab, bert(), added=normalized)
    made["added_normalized_cased"] = minilm_like(None, vocab, bert(lowercase=False), added=normalized)
    made["added_normalized_replace"] = minilm_like(None, vocab, n.Sequence([n.Replace("o", "0"), n.Prepend("_")]),
                                                   added=normalized)
    made["added_trimmed"] = minilm_like(None, vocab, bert(), added=normalized)
    made["added_trimmed"].post_processor = processors.RobertaProcessing(
        ("[SEP]", 102), ("[CLS]", 101), trim_offsets=True, add_prefix_space=True)
    made["cleanup"] = minilm_like(None, vocab, bert(), added=[
        (text, dict(normalized=False)) for text in ("do notable", "x do not y", "a . b ? c ! d , e", "a ' b '  ' c",
                                                    "do n't 'm 's 've 're", " .", "##do not", " n't", "' '")])
    made["no_template"] = minilm_like(None, vocab, bert(), template=None)
    made["no_template"].decoder = decoders.WordPiece(cleanup=False)
    made["no_decoder"] = minilm_like(None, vocab, bert())
    made["no_decoder"].decoder = None
    made["wide_template"] = minilm_like(None, vocab, bert())
    made["wide_template"].post_processor = processors.TemplateProcessing(
        single="[CLS] [MASK] $A [SEP] [SEP] [PAD]", special_tokens=[("[CLS]", 101), ("[MASK]", 103), ("[SEP]", 102),
                                                                     ("[PAD]", 0)])
    made["mpnet"] = mpnet(vocab)
    letters = {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "[PAD]": 3, "[MASK]": 4}
    for token in ["a", "##a", "aa", "##aa", "##aaa", "b", "##b", "ab", "##bab", "##ing", "un", "##aff", "##able", "#",
                  "###", "##", "é", "##é", "日", "##\u0301", "\u0301", "x", "##x y", "\u0627", "##\u0627"]:
        letters[token] = len(letters)
    made["tiny"] = minilm_like(None, letters, bert(strip_accents=False))
    made["tiny_split"] = minilm_like(None, letters, None)
    made["tiny_split"].pre_tokenizer = p.WhitespaceSplit()
    made["tiny_no_prefix"] = minilm_like(None, letters, bert(), continuing_subword_prefix="")
    made["tiny_other_prefix"] = minilm_like(None, letters, bert(), continuing_subword_prefix="é",
                                            max_input_chars_per_word=7)
    made["tiny_no_chars"] = minilm_like(None, letters, bert(), max_input_chars_per_word=0)
    return made


def mpnet(vocab):
    """all-mpnet-base-v2's pipeline: WordPiece and BertNormalizer, RoBERTa's template, <mask> with lstrip."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    tokenizer = Tokenizer(models.WordPiece(mpnet_vocab(vocab), unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "[UNK]", "<unk>",
                                  AddedToken("<mask>", lstrip=True, normalized=False, special=True)])
    return tokenizer


def darts(entries):
    """A map {text: text} as SentencePiece writes it: a double array of u32 and a pool of strings."""
    pool, where = b"", {}
    for text in sorted(set(entries.values())):
        where[text] = len(pool)
        pool += text.encode() + b"\0"
    children = {}
    for key, value in entries.items():
        node = children
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[None] = where[value]
    units, used, taken = {0: 0}, {0}, set()

    def place(node, at):  # at: the unit of this node
        labels = [0 if label is None else label for label in node]
        base = at + 1
        while base in taken or any((base ^ label) in used for label in labels):
            base += 1
        taken.add(base)
        offset = base ^ at
        assert offset < 1 << 21
        units[at] |= offset << 10 | (0x100 if None in node else 0)
        used.update(base ^ label for label in labels)
        for label, child in node.items():
            if label is None:
                units[base] = child | 0x80000000
            else:
                units[base ^ label] = label
        for label, child in node.items():
            if label is not None:
                place(child, base ^ label)

    place(children, 0)
    trie = b"".join(struct.pack("<I", units.get(at, 0)) for at in range(max(units) + 256))
    return base64.b64encode(struct.pack("<I", len(trie)) + trie + pool).decode()
