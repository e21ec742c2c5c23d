/* Inside of the image code: the folder of images. Any thread. */
#pragma once
#include "backend/base/paths.h"

#define IMAGE_TMP  ".build-"	 /* start of a build's temporary folder */
#define IMAGE_TREE "tree-"	 /* start of the name of an image that is a tree alone */
#define WORK_NOTE  "work-folder" /* file in it: where mmdebstrap works if that is elsewhere */

char *image_root(const struct paths *paths); /* CACHE/images; malloc'd */
char *image_recipe_hash(const char *suite);  /* 64 hex digits; malloc'd */
void image_sweep(const char *images);	     /* removes what killed builds left; under the build lock */
