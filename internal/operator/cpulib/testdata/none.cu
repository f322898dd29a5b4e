// none.cu: has no operator.
#include <millrace/operator.cuh>
