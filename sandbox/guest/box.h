/* The program inside of a container. */
#pragma once

/* box LISTEN NET LOCK PROCESSES MIB DISK: descriptors of the socket to serve, of the keeper, and of the lock that is to
 * be held; limits. Returns its exit code. */
int box_main(int argc, char **argv);
