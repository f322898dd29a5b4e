package main

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

// bom is a software bill of materials in CycloneDX 1.5, with the fields that we fill.
type bom struct {
	Format       string       `json:"bomFormat"`
	Spec         string       `json:"specVersion"`
	Serial       string       `json:"serialNumber"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

// component is a file of the release, or something that a file contains.
type component struct {
	Type        string    `json:"type"`
	Ref         string    `json:"bom-ref"`
	Name        string    `json:"name"`
	Version     string    `json:"version,omitempty"`
	Description string    `json:"description,omitempty"`
	Hashes      []hash    `json:"hashes,omitempty"`
	Licenses    []license `json:"licenses,omitempty"`
	PURL        string    `json:"purl,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type license struct {
	License struct {
		ID string `json:"id"`
	} `json:"license"`
}

// dependency says what a component contains.
type dependency struct {
	Ref string   `json:"ref"`
	On  []string `json:"dependsOn"`
}

// runSBOM prints the bill of materials of the files in a folder.
func runSBOM(args []string) error {
	dockerfile, err := os.ReadFile("Dockerfile")
	if err != nil {
		return err
	}
	b, err := newBOM(args[0], args[1], args[2], string(dockerfile))
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	return out.Encode(b)
}

// newBOM lists the files in a folder and what they contain. Go records the modules in each binary, so the list has what is really in
// there. cuda is the version of nvcc, whose runtime is in the kernel library.
func newBOM(version, folder, cuda, dockerfile string) (*bom, error) {
	product := component{Type: "application", Ref: "millrace", Name: "millrace", Version: version, Licenses: apache()}
	b := &bom{Format: "CycloneDX", Spec: "1.5", Version: 1, Metadata: metadata{Timestamp: sourceDate(), Component: product}}
	files, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	slices.Reverse(files) // workers before the archives that contain them
	all := sha256.New()
	var names []string
	for _, f := range files {
		file, contains, err := b.file(filepath.Join(folder, f.Name()), cuda, dockerfile)
		if err != nil {
			return nil, err
		}
		all.Write([]byte(file.Name + " " + file.Hashes[0].Content + "\n"))
		names = append(names, file.Ref)
		b.add(file)
		b.Dependencies = append(b.Dependencies, dependency{file.Ref, contains})
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s has no files: make release makes them", folder)
	}
	b.Dependencies = append(b.Dependencies, dependency{product.Ref, names})
	id := hex.EncodeToString(all.Sum(nil))
	b.Serial = fmt.Sprintf("urn:uuid:%s-%s-4%s-8%s-%s", id[:8], id[8:12], id[13:16], id[17:20], id[20:32])
	return b, nil
}

// apache is the licence of our own files.
func apache() []license {
	var l license
	l.License.ID = "Apache-2.0"
	return []license{l}
}

// sourceDate returns SOURCE_DATE_EPOCH, so that two releases of a commit are identical, or the time now.
func sourceDate() string {
	at := time.Now()
	if seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64); err == nil {
		at = time.Unix(seconds, 0)
	}
	return at.UTC().Format(time.RFC3339)
}

// add adds a component unless the list has it.
func (b *bom) add(c component) {
	if !slices.ContainsFunc(b.Components, func(known component) bool { return known.Ref == c.Ref }) {
		b.Components = append(b.Components, c)
	}
}

// file returns the component of a file and the references of what the file contains, which it adds.
func (b *bom) file(path, cuda, dockerfile string) (file component, contains []string, err error) {
	sum, err := sumOf(path)
	if err != nil {
		return file, nil, err
	}
	name := filepath.Base(path)
	file = component{Type: "file", Ref: "file:" + name, Name: name, Hashes: []hash{{"SHA-256", sum}}}
	contains = []string{}
	switch {
	case strings.HasPrefix(name, "worker-"):
		file.Licenses = apache()
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return file, nil, fmt.Errorf("%s: %w", path, err)
		}
		for _, c := range modules(info) {
			b.add(c)
			contains = append(contains, c.Ref)
		}
	case strings.HasSuffix(name, ".so"):
		file.Licenses = apache()
		contains = b.runtime(cuda)
	case strings.HasPrefix(name, "millrace-image-"):
		contains, err = b.image(name, cuda, dockerfile)
	}
	return file, contains, err
}

// image adds what an archive of the image has in addition to the worker and the kernel library, which are files of the release too.
func (b *bom) image(name, cuda, dockerfile string) (contains []string, err error) {
	base, err := baseImage(dockerfile)
	if err != nil {
		return nil, err
	}
	b.add(base)
	contains = []string{base.Ref, "file:libmillrace.so"}
	for _, c := range b.Components {
		if strings.HasPrefix(c.Name, "worker-") && !strings.HasSuffix(c.Name, "-static") {
			contains = append(contains, c.Ref)
		}
	}
	if strings.Contains(name, "-nvrtc-") {
		nvrtc := component{Type: "library", Ref: "cuda-nvrtc", Name: "NVRTC", Version: cuda, Description: "libnvrtc and its built-in functions; NVIDIA's CUDA Toolkit licence agreement"}
		debian := component{Type: "library", Ref: "gcc-libraries", Name: "libstdc++6 and libgcc-s1", Description: "of Debian 12; GPL 3.0 with the GCC Runtime Library Exception"}
		b.add(nvrtc)
		b.add(debian)
		contains = append(contains, nvrtc.Ref, debian.Ref)
	}
	return contains, nil
}

func sumOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // only read
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// modules returns Go's standard library and the modules of a binary.
func modules(info *debug.BuildInfo) (list []component) {
	list = append(list, module("std", strings.TrimPrefix(info.GoVersion, "go"), "Go's standard library"))
	for _, m := range info.Deps {
		m = cmp.Or(m.Replace, m)
		list = append(list, module(m.Path, m.Version, ""))
	}
	return list
}

func module(path, version, description string) component {
	purl := "pkg:golang/" + strings.ToLower(path) + "@" + strings.ReplaceAll(version, "+", "%2B")
	return component{Type: "library", Ref: purl, Name: path, Version: version, Description: description, PURL: purl}
}

// runtime adds what nvcc links into the kernel library.
func (b *bom) runtime(cuda string) []string {
	cudart := component{Type: "library", Ref: "cuda-runtime", Name: "CUDA runtime", Version: cuda, Description: "linked into libmillrace.so; NVIDIA's CUDA Toolkit licence agreement"}
	gcc := component{Type: "library", Ref: "gcc-runtime", Name: "GCC runtime libraries", Description: "parts of libstdc++ and libgcc, linked into libmillrace.so; GPL 3.0 with the GCC Runtime Library Exception"}
	b.add(cudart)
	b.add(gcc)
	return []string{cudart.Ref, gcc.Ref}
}

var baseLine = regexp.MustCompile(`(?m)^ARG BASE_IMAGE=(\S+)/([^/:\s]+):\S+@(sha256:[0-9a-f]{64})$`)

// baseImage returns the image's base, which its archive doesn't contain: Docker pulls it.
func baseImage(dockerfile string) (component, error) {
	found := baseLine.FindStringSubmatch(dockerfile)
	if found == nil {
		return component{}, errors.New("the Dockerfile names no base as ARG BASE_IMAGE=REGISTRY/NAME:TAG@sha256:DIGEST")
	}
	registry, name, digest := found[1], found[2], found[3]
	purl := fmt.Sprintf("pkg:oci/%s@%s?repository_url=%s/%s", name, strings.ReplaceAll(digest, ":", "%3A"), registry, name)
	return component{Type: "container", Ref: purl, Name: registry + "/" + name, Version: digest, Description: "the base of the image, which docker build pulls", PURL: purl}, nil
}
