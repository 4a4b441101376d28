/* SPDX-License-Identifier: Apache-2.0 */
/* data/image_exif.c - the orientation tag of an EXIF block; a damaged block counts as none, nothing outside it is
 * read. */
#include "data/image_priv.h"

#include <string.h>

static uint32_t number(const uint8_t *p, int bytes, bool little)
{
    uint32_t x = 0;
    for (int i = 0; i < bytes; i++) x |= (uint32_t)p[i] << 8 * (little ? i : bytes - 1 - i);
    return x;
}

int32_t st_exif_orientation(const uint8_t *tiff, size_t n)
{
    enum { HEAD = 8, ENTRY = 12, TAG = 0x0112, SHORT = 3 };
    if (n < HEAD) return 1;
    bool little = memcmp(tiff, "II*\0", 4) == 0;
    if (!little && memcmp(tiff, "MM\0*", 4) != 0) return 1;
    size_t at = number(tiff + 4, 4, little);
    if (at > n || n - at < 2) return 1;
    uint32_t entries = number(tiff + at, 2, little);
    at += 2;
    for (uint32_t i = 0; i < entries && n - at >= ENTRY; i++, at += ENTRY) {
        const uint8_t *e = tiff + at;
        if (number(e, 2, little) != TAG) continue;
        uint32_t value = number(e + 8, 2, little);
        return number(e + 2, 2, little) == SHORT && number(e + 4, 4, little) == 1 && value >= 1 && value <= 8
                   ? (int32_t)value
                   : 1;
    }
    return 1;
}
