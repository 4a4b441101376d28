/* SPDX-License-Identifier: Apache-2.0 */
/* data/image.c - which format, how large, which way up. */
#include "data/image_priv.h"

#include <string.h>

uint8_t *st_image_memory(st_image_job *job, uint32_t width, uint32_t height, int32_t channels, const char *format)
{
    int64_t pixels = (int64_t)width * height;
    if (width == 0 || height == 0) {
        st_fail(job->error, ST_E_DATA, "%s picture of %u x %u pixels: nothing in it", format, width, height);
        return NULL;
    }
    if (width > INT32_MAX || height > INT32_MAX || pixels > job->rules->max_pixels) {
        st_fail(job->error, ST_E_DATA, "%s picture of %u x %u pixels: more than the %lld allowed", format, width,
                height, (long long)job->rules->max_pixels);
        return NULL;
    }
    uint8_t *memory = st_arena_alloc(job->arena, (size_t)pixels * (size_t)channels);
    if (!memory) st_fail(job->error, ST_E_NOMEM, "no memory for a picture of %u x %u pixels", width, height);
    job->image.width = (int32_t)width;
    job->image.height = (int32_t)height;
    return memory;
}

/* EXIF: 2 mirrored, 3 turned by 180, 4 flipped, 5 transposed, 6 to be turned right, 7 transversed, 8 to be turned
 * left. */
static int orient(st_image_job *job)
{
    int32_t o = job->orientation, w = job->image.width, h = job->image.height;
    if (o <= 1 || o > 8) return ST_OK;
    bool swapped = o >= 5, left = o == 2 || o == 3 || o == 7 || o == 8, up = o == 3 || o == 4 || o == 6 || o == 7;
    int32_t to_w = swapped ? h : w, to_h = swapped ? w : h;
    uint8_t *to = st_arena_alloc(job->arena, (size_t)w * (size_t)h * 3);
    if (!to) return st_fail(job->error, ST_E_NOMEM, "no memory to turn a picture of %d x %d pixels", w, h);
    for (int32_t y = 0; y < to_h; y++) {
        for (int32_t x = 0; x < to_w; x++) {
            int32_t from_x = swapped ? y : x, from_y = swapped ? x : y;
            if (left) from_x = w - 1 - from_x;
            if (up) from_y = h - 1 - from_y;
            memcpy(to + 3 * ((size_t)y * (size_t)to_w + (size_t)x),
                   job->image.rgb + 3 * ((size_t)from_y * (size_t)w + (size_t)from_x), 3);
        }
    }
    job->image = (st_image){to_w, to_h, to};
    return ST_OK;
}

static bool begins(const st_image_job *job, size_t at, const char *with, size_t n)
{
    return job->n >= at + n && memcmp(job->data + at, with, n) == 0;
}

static const char *other_format(const st_image_job *job) /* known by name, not read */
{
    if (begins(job, 0, "GIF87a", 6) || begins(job, 0, "GIF89a", 6)) return "GIF";
    if (begins(job, 0, "RIFF", 4) && begins(job, 8, "WEBP", 4)) return "WebP";
    if (begins(job, 0, "BM", 2)) return "BMP";
    if (begins(job, 0, "II*\0", 4) || begins(job, 0, "MM\0*", 4)) return "TIFF";
    if (begins(job, 4, "ftypavif", 8)) return "AVIF";
    if (begins(job, 4, "ftyphei", 7) || begins(job, 4, "ftypmif1", 8)) return "HEIF";
    if (begins(job, 0, "\0\0\0\x0CjP  ", 8)) return "JPEG 2000";
    return NULL;
}

int st_image_decode(const void *data, size_t n, const st_image_rules *rules, st_arena *arena, st_image *out,
                    st_error *error)
{
    st_image_job job = {.data = data, .n = n, .rules = rules, .arena = arena, .error = error, .orientation = 1};
    const char *other;
    if (n == 0) return st_fail(error, ST_E_DATA, "the picture's file is empty");
    if (begins(&job, 0, "\x89PNG\r\n\x1A\n", 8)) ST_TRY(st_png_decode(&job));
    else if (begins(&job, 0, "\xFF\xD8\xFF", 3)) ST_TRY(st_jpeg_decode(&job));
    else if ((other = other_format(&job)))
        return st_fail(error, ST_E_DATA, "a %s picture: only PNG and JPEG are read", other);
    else return st_fail(error, ST_E_DATA, "not a picture: begins with byte 0x%02X, neither PNG nor JPEG", job.data[0]);
    ST_TRY(orient(&job));
    *out = job.image;
    return ST_OK;
}
