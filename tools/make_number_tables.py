#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_number_tables.py - write src/base/number_tables.h, the powers of ten that fl_f32_text needs.

    python3 tools/make_number_tables.py > src/base/number_tables.h

Entry i stands for 10^k with k = POWER_MIN + i, as the 64-bit integer g = floor(10^k * 2^-s) + 1 where s is
chosen so that 2^63 <= floor(10^k * 2^-s) < 2^64 (s = floor(log2(10^k)) - 63). Exact integer arithmetic.
"""

POWER_MIN = -31  # largest float32: 3.4e38 has a last digit worth 10^31, so it is scaled by 10^-31
POWER_MAX = 45   # smallest: 1.4e-45 is scaled by 10^45


def power_entry(k: int) -> int:
    """floor(10^k * 2^-s) + 1 with 64 significant bits."""
    if k >= 0:
        value = 10**k
        s = value.bit_length() - 64
        g = value >> s if s >= 0 else value << -s
    else:
        divisor = 10**-k
        bits = 63 + divisor.bit_length()
        g = (1 << bits) // divisor
        if g >= 1 << 64:
            bits -= 1
            g = (1 << bits) // divisor
    assert 1 << 63 <= g < 1 << 64
    return g + 1


def main() -> None:
    print("/* SPDX-License-Identifier: Apache-2.0 */")
    print("/* number_tables.h - powers of ten for number.c; written by tools/make_number_tables.py.")
    print(" *")
    print(" * Entry i is 10^(POWER_MIN + i) with 64 significant bits, rounded down, plus one. */")
    print("#ifndef FL_BASE_NUMBER_TABLES_H")
    print("#define FL_BASE_NUMBER_TABLES_H")
    print()
    print("#include <stdint.h>")
    print()
    print(f"enum {{ POWER_MIN = {POWER_MIN}, POWER_MAX = {POWER_MAX} }};")
    print()
    print("static const uint64_t power_of_ten[POWER_MAX - POWER_MIN + 1] = {")
    for k in range(POWER_MIN, POWER_MAX + 1):
        print(f"    0x{power_entry(k):016x}u, /* 1e{k} */")
    print("};")
    print()
    print("#endif")


if __name__ == "__main__":
    main()
