package main

import (
	"fmt"
	"os"
	"strings"
)

const (
	// built is the line of the Dockerfile that takes the files of the image from an earlier stage.
	built = "COPY --from=worker /src/bin/image/root/ /\n"

	// packed is the line that takes them from the archive instead. Docker unpacks it.
	packed = "ADD root.tar /\n"
)

// runDockerfile prints the Dockerfile of the image's archive.
func runDockerfile(args []string) error {
	text, err := os.ReadFile("Dockerfile")
	if err != nil {
		return err
	}
	last, err := lastStage(string(text), args[0], args[1], args[2])
	if err != nil {
		return err
	}
	_, err = fmt.Print(last)
	return err
}

// lastStage returns the Dockerfile's last stage, with the base that it names, and with the version and the commit. It needs only Docker: the
// files are in root.tar. The tag is for a comment that says how to build it.
func lastStage(dockerfile, version, commit, tag string) (string, error) {
	from := strings.LastIndex(dockerfile, "\nFROM ")
	if from < 0 || strings.Count(dockerfile[from:], built) != 1 {
		return "", fmt.Errorf("the last stage of the Dockerfile has no line %q", strings.TrimSpace(built))
	}
	var base string
	for line := range strings.Lines(dockerfile[:from+1]) {
		if strings.HasPrefix(line, "ARG BASE_IMAGE=") {
			base = line
		}
	}
	if base == "" {
		return "", fmt.Errorf("the Dockerfile has no line ARG BASE_IMAGE=")
	}
	stage := strings.NewReplacer(built, packed, "ARG VERSION=dev\n", "ARG VERSION="+version+"\n", "ARG COMMIT=unknown\n", "ARG COMMIT="+commit+"\n").Replace(dockerfile[from:])
	return "# Build the image with: docker build -t millrace:" + tag + " - < this archive\n" + base + stage, nil
}
