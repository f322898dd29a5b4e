// spread_block.cu: spread.cu with one block per record.
#define SPREAD_BLOCK
#include "spread.cu"
