/* The guest program on a machine that is reached by ssh (kind ssh:HOST), started there by sandbox/remote.c. */
#pragma once

#define REMOTE_FOLDER ".berthfs" /* in the user's home there; everything of ours is below it */

/* PROGRAM link FOLDER   starts the tool daemon of that folder if none runs; then standard input and output are a mux
 *                       (mux.h, the guest's side) into it. The newest link of a folder is the only one.
 * PROGRAM end FOLDER    ends the daemon and all that it runs, and removes the folder; with the last one, all of ours.
 * Exit code; words for people on standard error. */
int remote_main(int argc, char **argv);
