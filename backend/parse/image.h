/* What an image is, by its bytes. Any thread; pure. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#define IMAGE_HEAD 12 /* bytes that image_media() needs, at most */

/* "image/png", "image/jpeg", "image/gif", "image/webp"; NULL: it is none that models take. */
const char *image_media(const void *p, size_t n);
/* Its size in pixels; false if it cannot be read: then it is broken. */
bool image_size(const void *p, size_t n, unsigned *width, unsigned *height);
