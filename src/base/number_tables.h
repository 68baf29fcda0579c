/* SPDX-License-Identifier: Apache-2.0 */
/* number_tables.h - powers of ten for number.c; written by tools/make_number_tables.py.
 *
 * Entry i is 10^(POWER_MIN + i) with 64 significant bits, rounded down, plus one. */
#ifndef FL_BASE_NUMBER_TABLES_H
#define FL_BASE_NUMBER_TABLES_H

#include <stdint.h>

enum { POWER_MIN = -31, POWER_MAX = 45 };

static const uint64_t power_of_ten[POWER_MAX - POWER_MIN + 1] = {
    0x81ceb32c4b43fcf5u, /* 1e-31 */
    0xa2425ff75e14fc32u, /* 1e-30 */
    0xcad2f7f5359a3b3fu, /* 1e-29 */
    0xfd87b5f28300ca0eu, /* 1e-28 */
    0x9e74d1b791e07e49u, /* 1e-27 */
    0xc612062576589ddbu, /* 1e-26 */
    0xf79687aed3eec552u, /* 1e-25 */
    0x9abe14cd44753b53u, /* 1e-24 */
    0xc16d9a0095928a28u, /* 1e-23 */
    0xf1c90080baf72cb2u, /* 1e-22 */
    0x971da05074da7befu, /* 1e-21 */
    0xbce5086492111aebu, /* 1e-20 */
    0xec1e4a7db69561a6u, /* 1e-19 */
    0x9392ee8e921d5d08u, /* 1e-18 */
    0xb877aa3236a4b44au, /* 1e-17 */
    0xe69594bec44de15cu, /* 1e-16 */
    0x901d7cf73ab0acdau, /* 1e-15 */
    0xb424dc35095cd810u, /* 1e-14 */
    0xe12e13424bb40e14u, /* 1e-13 */
    0x8cbccc096f5088ccu, /* 1e-12 */
    0xafebff0bcb24aaffu, /* 1e-11 */
    0xdbe6fecebdedd5bfu, /* 1e-10 */
    0x89705f4136b4a598u, /* 1e-9 */
    0xabcc77118461cefdu, /* 1e-8 */
    0xd6bf94d5e57a42bdu, /* 1e-7 */
    0x8637bd05af6c69b6u, /* 1e-6 */
    0xa7c5ac471b478424u, /* 1e-5 */
    0xd1b71758e219652cu, /* 1e-4 */
    0x83126e978d4fdf3cu, /* 1e-3 */
    0xa3d70a3d70a3d70bu, /* 1e-2 */
    0xcccccccccccccccdu, /* 1e-1 */
    0x8000000000000001u, /* 1e0 */
    0xa000000000000001u, /* 1e1 */
    0xc800000000000001u, /* 1e2 */
    0xfa00000000000001u, /* 1e3 */
    0x9c40000000000001u, /* 1e4 */
    0xc350000000000001u, /* 1e5 */
    0xf424000000000001u, /* 1e6 */
    0x9896800000000001u, /* 1e7 */
    0xbebc200000000001u, /* 1e8 */
    0xee6b280000000001u, /* 1e9 */
    0x9502f90000000001u, /* 1e10 */
    0xba43b74000000001u, /* 1e11 */
    0xe8d4a51000000001u, /* 1e12 */
    0x9184e72a00000001u, /* 1e13 */
    0xb5e620f480000001u, /* 1e14 */
    0xe35fa931a0000001u, /* 1e15 */
    0x8e1bc9bf04000001u, /* 1e16 */
    0xb1a2bc2ec5000001u, /* 1e17 */
    0xde0b6b3a76400001u, /* 1e18 */
    0x8ac7230489e80001u, /* 1e19 */
    0xad78ebc5ac620001u, /* 1e20 */
    0xd8d726b7177a8001u, /* 1e21 */
    0x878678326eac9001u, /* 1e22 */
    0xa968163f0a57b401u, /* 1e23 */
    0xd3c21bcecceda101u, /* 1e24 */
    0x84595161401484a1u, /* 1e25 */
    0xa56fa5b99019a5c9u, /* 1e26 */
    0xcecb8f27f4200f3bu, /* 1e27 */
    0x813f3978f8940985u, /* 1e28 */
    0xa18f07d736b90be6u, /* 1e29 */
    0xc9f2c9cd04674edfu, /* 1e30 */
    0xfc6f7c4045812297u, /* 1e31 */
    0x9dc5ada82b70b59eu, /* 1e32 */
    0xc5371912364ce306u, /* 1e33 */
    0xf684df56c3e01bc7u, /* 1e34 */
    0x9a130b963a6c115du, /* 1e35 */
    0xc097ce7bc90715b4u, /* 1e36 */
    0xf0bdc21abb48db21u, /* 1e37 */
    0x96769950b50d88f5u, /* 1e38 */
    0xbc143fa4e250eb32u, /* 1e39 */
    0xeb194f8e1ae525feu, /* 1e40 */
    0x92efd1b8d0cf37bfu, /* 1e41 */
    0xb7abc627050305aeu, /* 1e42 */
    0xe596b7b0c643c71au, /* 1e43 */
    0x8f7e32ce7bea5c70u, /* 1e44 */
    0xb35dbf821ae4f38cu, /* 1e45 */
};

#endif
