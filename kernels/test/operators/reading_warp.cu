// reading_warp.cu: reading for one warp per record.
#define READING_WARP
#include "reading.cu"
