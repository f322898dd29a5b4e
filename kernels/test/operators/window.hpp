// Checks the windows through which a GPU's thread reads a record.
#pragma once

// Reads records of all small sizes, at all alignments, in batches that begin and end near the records. A read outside
// the batch ends the program.
void check_windows();
