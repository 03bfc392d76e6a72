"""A second reader of the messages: the examples of transport/PROTOCOL.md against its own CDDL.

usage: messages.py PROTOCOL.md

The rules are taken from the document's CDDL, so a rule that the examples break, an example whose bytes are
not the determined ones and a field that the text describes otherwise are all found here.
"""

import re
import struct
import sys

from update import Refused, refuse

# CBOR (RFC 8949): maps, lists, whole numbers, bytes, text, truth values and 64-bit floats


def head(data, at):
    refuse(at >= len(data), "a message ends early")
    kind, low = data[at] >> 5, data[at] & 31
    if low < 24:
        return kind, low, low, at + 1
    refuse(low > 27, "an indefinite or reserved length")
    size = 1 << (low - 24)
    refuse(at + 1 + size > len(data), "a message ends early")
    value = int.from_bytes(data[at + 1 : at + 1 + size], "big")
    refuse(kind != 7 and value < (24, 1 << 8, 1 << 16, 1 << 32)[low - 24], "a number that is not the shortest")
    return kind, low, value, at + 1 + size


def read_simple(data, low, value, at):
    refuse(low not in (20, 21, 27), "a simple value or a short float")
    return (struct.unpack(">d", data[at - 8 : at])[0] if low == 27 else low == 21), at


def read_map(data, count, at):
    found, last = {}, -1
    for _ in range(count):
        key, at = read(data, at)
        refuse(type(key) is not int or key <= last, "keys out of order")
        found[key], at = read(data, at)
        last = key
    return found, at


def read(data, at=0):
    kind, low, value, at = head(data, at)
    if kind == 0:
        return value, at
    if kind in (2, 3):
        refuse(at + value > len(data), "a message ends early")
        part = data[at : at + value]
        return (part if kind == 2 else part.decode()), at + value
    if kind == 4:
        items = []
        for _ in range(value):
            item, at = read(data, at)
            items.append(item)
        return items, at
    refuse(kind not in (5, 7), "a type that no message has")
    return read_map(data, value, at) if kind == 5 else read_simple(data, low, value, at)


# CDDL (RFC 8610): as much of it as the document uses


class Rules:
    def __init__(self, text):
        text = re.sub(r";.*", "", text)
        parts = re.split(r"^(\w+)\s*=\s*", text, flags=re.M)[1:]
        self.rules = {name: body.strip() for name, body in zip(parts[::2], parts[1::2])}

    def check(self, value, rule, where):
        rule = rule.strip()
        if rule in self.rules:
            return self.check(value, self.rules[rule], where)
        if rule.startswith("{"):
            return self.check_map(value, rule, where)
        if rule.startswith("["):
            return self.check_list(value, rule, where)
        if " / " in rule:
            return refuse(not any(self.fits(value, part) for part in rule.split(" / ")), where)
        return refuse(not self.fits_simple(value, rule), "%s: %r is not %s" % (where, value, rule))

    def fits(self, value, rule):
        try:
            self.check(value, rule, "")
        except Refused:
            return False
        return True

    def check_map(self, value, rule, where):
        refuse(type(value) is not dict, "%s is no map" % where)
        fields = re.findall(r"(\? )?(\d+) => ((?:\[.*?\)\]|[^,])+),", rule)
        fields = [(key, part) for optional, key, part in fields if not optional or int(key) in value]
        refuse(list(value) != [int(key) for key, _ in fields], "%s has the keys %s" % (where, list(value)))
        for key, part in fields:
            self.check(value[int(key)], part, "%s %s" % (where, key))

    def check_list(self, value, rule, where):
        refuse(type(value) is not list, "%s is no list" % where)
        parts = [part for _, part in re.findall(r"(\w+): ([\w.]+)", rule)]
        repeated = re.match(r"\[0\*(\d+) ", rule)
        refuse(len(value) != len(parts) and not repeated, "%s has %d items" % (where, len(value)))
        refuse(len(value) % len(parts) or repeated and len(value) > int(repeated[1]) * len(parts),
               "%s has %d items" % (where, len(value)))
        for i, item in enumerate(value):
            self.check(item, parts[i % len(parts)], where)

    def fits_simple(self, value, rule):
        literal = re.fullmatch(r'"(.*)"', rule)
        limits = re.fullmatch(r"(\d+)\.\.(\d+)", rule)
        reals = re.fullmatch(r"(-?[\d.e]+?)\.\.([\d.e]+)", rule)
        sized = re.fullmatch(r"(uint|bstr) \.size (\d+)", rule)
        texts = re.fullmatch(r"tstr \.size \((\d+)\.\.(\d+)\)", rule)
        named = re.fullmatch(r'tstr \.regexp "(.*)"', rule)
        if literal:
            return value == literal[1]
        if limits:
            return type(value) is int and int(limits[1]) <= value <= int(limits[2])
        if reals:
            return type(value) is float and float(reals[1]) <= value <= float(reals[2])
        if sized and sized[1] == "uint":
            return type(value) is int and value < 256 ** int(sized[2])
        if sized:
            return type(value) is bytes and len(value) == int(sized[2])
        if texts:
            return type(value) is str and int(texts[1]) <= len(value.encode()) <= int(texts[2])
        if named:
            return type(value) is str and re.fullmatch(named[1], value) is not None
        refuse(rule != "bool", "the CDDL has '%s', which this reader does not know" % rule)
        return type(value) is bool


# The examples, as the text around them describes them


def digest(byte):
    return bytes([byte]) * 32


RUN = 0x0123456789ABCDEF
UPLOAD = bytes(range(1, 9))
EXAMPLES = [
    ("register", {1: [2, 2], 2: [1, 2], 3: [1, 1], 4: 6, 5: 4 << 30, 6: 15000, 7: "orin-nano"}),
    ("manifest", {1: 2, 2: 1, 3: 1, 4: 64, 5: 262144, 6: RUN, 7: 1, 8: "hall-2", 9: digest(0x11), 10: 4711, 11: {
        1: "digits", 2: 7, 3: 0, 4: "digits", 5: "", 6: 0.0625, 7: 0.0, 8: 0.1, 9: 32, 10: 1, 11: 20, 12: 0.05,
        13: 0.9, 14: 0.0001, 15: False, 16: {1: 2, 2: 0.01, 3: 4}, 17: {1: 1, 2: 1.0, 3: 0}, 18: 100, 19: 2,
        20: 1.5, 21: 600000, 22: 10.0, 23: 1000000, 24: 5, 25: 0.97, 27: 100, 28: 3, 29: 3, 30: 0.9, 31: 1}}),
    ("round", {1: RUN, 2: 1, 3: 0, 4: 5, 5: 123456, 6: True, 7: 4, 8: digest(0x22), 9: 100088, 10: digest(0x33),
               11: digest(0x44), 12: 2000, 13: 4, 14: True, 15: digest(0x55)}),
    ("declare", {1: RUN, 2: 5, 3: 3000, 4: digest(0x66), 5: digest(0x22), 6: 12.5, 7: 90, 8: 100, 9: 0.25}),
    ("status", {1: UPLOAD, 2: False, 3: 0, 4: bytes(32), 5: 30, 6: 24, 7: [4, 2, 10, 1, 27, 3], 8: "", 9: 30,
                10: [18, 6, 12, 3]}),
    ("status", {1: UPLOAD, 2: True, 3: 2, 4: digest(0x77), 5: 30, 6: 30, 7: [], 8: "round 5 is over", 9: 0, 10: []}),
]


def main(path):
    with open(path) as file:
        text = file.read()
    rules = Rules(re.search(r"```cddl\n(.*?)```", text, re.S)[1])
    blocks = re.findall(r"(\w+):\n\n```\n((?:[ 0-9a-f]+\n)+)```", text)
    refuse([name for name, _ in blocks] != [name for name, _ in EXAMPLES], "other examples than these")
    for (name, block), (_, expected) in zip(blocks, EXAMPLES):
        data = bytes.fromhex(block)
        message, end = read(data)
        refuse(end != len(data) or len(data) > 1024, "bytes behind the %s" % name)
        rules.check(message, name, name)
        refuse(message != expected, "%s: %s" % (name, message))
    print("%d messages read" % len(blocks))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Refused as error:
        sys.exit("messages: %s" % error)
