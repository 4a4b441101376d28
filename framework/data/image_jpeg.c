/* SPDX-License-Identifier: Apache-2.0 */
/* data/image_jpeg.c - JPEG through libjpeg. Its errors jump back to read_all(); a warning that means lost data
 * refuses the picture, because the library would fill the rest with gray. */
#include <stdio.h>

#include "data/image_priv.h"

#include <jpeglib.h>

#include <jerror.h>
#include <setjmp.h>
#include <string.h>

enum {
    MOST_SCANS = 500
}; /* a progressive file of a few kilobytes can ask for thousands of passes over a large picture */

typedef struct reader {
    struct jpeg_decompress_struct j;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    st_image_job *job;
    jmp_buf back;
    uint8_t *pixels; /* [height, width, components] */
    char why[JMSG_LENGTH_MAX];
} reader;

static void give_up(j_common_ptr c)
{
    reader *r = c->client_data;
    c->err->format_message(c, r->why);
    longjmp(r->back, 1);
}

static void on_message(j_common_ptr c, int level)
{
    int code = c->err->msg_code;
    if (level >= 0 || code == JWRN_JFIF_MAJOR || code == JWRN_ADOBE_XFORM || code == JWRN_EXTRANEOUS_DATA) return;
    give_up(c);
}

static void on_text(j_common_ptr c) /* would print */ {}

static void on_progress(j_common_ptr c)
{
    reader *r = c->client_data;
    if (c->is_decompressor && ((j_decompress_ptr)c)->input_scan_number > MOST_SCANS) {
        snprintf(r->why, sizeof r->why, "more than %d scans", MOST_SCANS);
        longjmp(r->back, 1);
    }
}

static int32_t orientation_of(const reader *r)
{
    static const char tag[6] = "Exif\0";
    for (jpeg_saved_marker_ptr m = r->j.marker_list; m; m = m->next)
        if (m->marker == JPEG_APP0 + 1 && m->data_length > sizeof tag && memcmp(m->data, tag, sizeof tag) == 0)
            return st_exif_orientation(m->data + sizeof tag, m->data_length - sizeof tag);
    return 1;
}

static int read_all(reader *r)
{
    j_decompress_ptr j = &r->j;
    if (setjmp(r->back)) return st_fail(r->job->error, ST_E_DATA, "damaged JPEG picture: %s", r->why);
    jpeg_create_decompress(j);
    j->progress = &r->progress;
    jpeg_mem_src(j, r->job->data, r->job->n);
    jpeg_save_markers(j, JPEG_APP0 + 1, 0xFFFF);
    jpeg_read_header(j, TRUE);
    if (j->arith_code) return st_fail(r->job->error, ST_E_DATA, "a JPEG picture with arithmetic coding: not supported");
    if (j->num_components != 1 && j->num_components != 3 && j->num_components != 4)
        return st_fail(r->job->error, ST_E_DATA, "a JPEG picture with %d components: 1, 3 and 4 are read",
                       j->num_components);
    r->job->orientation = orientation_of(r);
    j->out_color_space = j->num_components == 1 ? JCS_GRAYSCALE : j->num_components == 3 ? JCS_RGB : JCS_CMYK;
    int32_t room = j->num_components == 4 ? 4 : 3;
    r->pixels = st_image_memory(r->job, j->image_width, j->image_height, room, "JPEG");
    if (!r->pixels) return r->job->error->code;
    jpeg_start_decompress(j);
    size_t stride = (size_t)j->output_width * (size_t)j->output_components;
    while (j->output_scanline < j->output_height) {
        JSAMPROW row = r->pixels + stride * j->output_scanline;
        jpeg_read_scanlines(j, &row, 1);
    }
    jpeg_finish_decompress(j);
    return ST_OK;
}

static void from_gray(uint8_t *p, size_t n) /* [n] -> [n, 3] in the same memory, from the end */
{
    for (size_t i = n; i-- > 0;) p[3 * i] = p[3 * i + 1] = p[3 * i + 2] = p[i];
}

static void from_inks(uint8_t *p, size_t n, bool inverted) /* [n, 4] -> [n, 3] */
{
    uint8_t flip = inverted ? 0 : 0xFF; /* Adobe stores 255 - ink */
    for (size_t i = 0; i < n; i++) {
        uint32_t k = p[4 * i + 3] ^ flip;
        for (size_t c = 0; c < 3; c++) p[3 * i + c] = (uint8_t)(((uint32_t)(p[4 * i + c] ^ flip) * k + 127) / 255);
    }
}

int st_jpeg_decode(st_image_job *job)
{
    reader r;
    memset(&r, 0, sizeof r);
    r.job = job;
    r.j.err = jpeg_std_error(&r.errors);
    r.j.client_data = &r;
    r.errors.error_exit = give_up;
    r.errors.emit_message = on_message;
    r.errors.output_message = on_text;
    r.progress.progress_monitor = on_progress;
    int rc = read_all(&r), components = r.j.num_components;
    bool inverted = r.j.saw_Adobe_marker;
    jpeg_destroy_decompress(&r.j);
    ST_TRY(rc);
    size_t n = (size_t)job->image.width * (size_t)job->image.height;
    if (components == 1) from_gray(r.pixels, n);
    if (components == 4) from_inks(r.pixels, n, inverted);
    job->image.rgb = r.pixels;
    return ST_OK;
}
