/* main() of a fuzz target without a fuzzing engine: runs each file named once. */
#pragma once
#include "backend/base/buf.h"
#include "backend/base/fd.h"

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		CLEAN_BUF struct buf b = BUF_INIT;
		if (file_read(argv[i], &b, 64 << 20, NULL))
			return 1;
		LLVMFuzzerTestOneInput((const uint8_t *)buf_str(&b), b.n);
	}
	return 0;
}
