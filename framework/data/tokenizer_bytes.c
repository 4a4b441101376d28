/* SPDX-License-Identifier: Apache-2.0 */
/* data/tokenizer_bytes.c - the alphabet of byte-level BPE: every byte as a printable character. */
#include "data/tokenizer_priv.h"

void st_byte_alphabet(uint32_t to_char[256], int16_t to_byte[512])
{
    uint32_t next = 256;
    for (int i = 0; i < 512; i++) to_byte[i] = -1;
    for (uint32_t b = 0; b < 256; b++) {
        bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        to_char[b] = printable ? b : next++;
        to_byte[to_char[b]] = (int16_t)b;
    }
}
