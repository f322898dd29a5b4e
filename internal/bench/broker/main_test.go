package broker

import (
	"flag"
	"os"
	"strconv"
	"testing"
)

// atOnce is the default number of parallel tests. They mostly wait for a server, whatever the number of processors.
const atOnce = 6

func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", strconv.Itoa(atOnce)); err != nil { // unless -parallel says otherwise
		panic(err)
	}
	os.Exit(m.Run())
}
