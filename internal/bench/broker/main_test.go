package broker

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"
)

// atOnce is the default number of parallel tests. They mostly wait for a server, whatever the number of processors.
const atOnce = 6

func TestMain(m *testing.M) {
	if os.Getenv(envStream) != "" {
		if err := moveForBench(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(atOnce)); err != nil { // unless -parallel says otherwise
		panic(err)
	}
	os.Exit(m.Run())
}
