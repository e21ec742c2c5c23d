#!/bin/sh
# Makes an assembler file that carries a program as guest_image: embed.sh PROGRAM OUTPUT
set -eu
case $1 in
/*) file=$1 ;;
*) file=$PWD/$1 ;;
esac
cat >"$2" <<END
	.section .rodata
	.globl guest_image, guest_image_size
	.type guest_image, %object
	.type guest_image_size, %object
	.balign 16
guest_image:
	.incbin "$file"
1:
	.size guest_image, 1b - guest_image
	.balign 8
guest_image_size:
	.quad 1b - guest_image
	.size guest_image_size, 8
	.section .note.GNU-stack, "", %progbits
END
