/* The rate of the processor's time stamp counter. Any thread; takes about 60 ms. */
#pragma once

/* kHz, or 0 where there is no such counter. Under software emulation a guest sees the host's counter, but finds no
 * other clock to measure it by when the machine is busy, and then hangs for ever: so it must be told. */
long tsc_khz(void);
