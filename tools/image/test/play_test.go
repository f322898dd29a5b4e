package image

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// play executes a Dockerfile like Docker, with a folder instead of a container for each stage. COPY copies only files
// of the repository that .dockerignore permits. RUN runs on this machine with the environment of the stage. A step that
// lacks a file fails as in Docker. Base images are ignored: a stage contains only copied and built files.
type play struct {
	ctx    context.Context
	dir    string            // contains the stages' folders by name; the last one is named final
	args   map[string]string // values of --build-arg
	ignore *patternmatcher.PatternMatcher
	cache  string // folder with prebuilt stages that no argument changes, or empty
	shown  func(format string, args ...any)
}

// final is the folder name of the last stage.
const final = "final"

func newPlay(ctx context.Context, dir string, args map[string]string, shown func(string, ...any)) (*play, error) {
	f, err := os.Open(filepath.Join(repository, ".dockerignore"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	patterns, err := ignorefile.ReadAll(f)
	if err != nil {
		return nil, err
	}
	ignore, err := patternmatcher.New(patterns)
	return &play{ctx: ctx, dir: dir, args: args, ignore: ignore, shown: shown}, err
}

// stage is the stage that play executes.
type stage struct {
	*play
	root    string // folder of the stage, which represents /
	workdir string // relative to root
	env     []string
}

func (p *play) all(stages []instructions.Stage) error {
	for i, s := range stages {
		name := s.Name
		if i == len(stages)-1 {
			name = final
		}
		at := &stage{play: p, root: filepath.Join(p.dir, name), workdir: "/"}
		if built := filepath.Join(p.cache, name); p.cache != "" && isCacheable(s) && copyFolder(built, at.root) == nil {
			continue
		}
		if err := os.MkdirAll(at.root, 0o755); err != nil {
			return err
		}
		if base := slices.IndexFunc(stages[:i], func(b instructions.Stage) bool { return b.Name == s.BaseName }); base >= 0 {
			if err := copyFolder(filepath.Join(p.dir, s.BaseName), at.root); err != nil {
				return err
			}
			at.workdir = workdirOf(stages[base])
		}
		for _, c := range s.Commands {
			if err := at.do(c); err != nil {
				return fmt.Errorf("stage %s: %s: %w", name, c, err)
			}
		}
	}
	return nil
}

// isCacheable reports whether a stage's content is independent of all arguments.
func isCacheable(s instructions.Stage) bool {
	return !slices.ContainsFunc(s.Commands, func(c instructions.Command) bool {
		_, takes := c.(*instructions.ArgCommand)
		from, copies := c.(*instructions.CopyCommand)
		return takes || copies && from.From != ""
	})
}

// copyFolder copies a folder with its file times. The target may exist.
func copyFolder(from, to string) error {
	out, err := exec.Command("cp", "--archive", "--no-target-directory", from, to).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// workdirOf returns the last working directory of a stage. A stage that builds on it starts there.
func workdirOf(base instructions.Stage) string {
	for _, c := range slices.Backward(base.Commands) {
		if w, ok := c.(*instructions.WorkdirCommand); ok {
			return w.Path
		}
	}
	return "/"
}

// do executes one instruction. It ignores instructions that only describe the image, because other tests check them.
func (s *stage) do(command instructions.Command) error {
	switch c := command.(type) {
	case *instructions.WorkdirCommand:
		s.workdir = c.Path
		return os.MkdirAll(filepath.Join(s.root, s.workdir), 0o755)
	case *instructions.ArgCommand:
		for _, a := range c.Args {
			value, given := s.args[a.Key]
			if !given {
				value = a.ValueString()
			}
			s.env = append(s.env, a.Key+"="+value)
		}
	case *instructions.CopyCommand:
		return s.copyAll(c)
	case *instructions.RunCommand:
		return s.run(c)
	case *instructions.LabelCommand, *instructions.EnvCommand, *instructions.UserCommand, *instructions.ExposeCommand,
		*instructions.EntrypointCommand:
	default:
		return fmt.Errorf("play doesn't support %s: add it in play_test.go", command.Name())
	}
	return nil
}

// run executes a step. It must be a make target, because only make targets also run without Docker.
func (s *stage) run(c *instructions.RunCommand) error {
	line := strings.Join(c.CmdLine, " ")
	words := strings.Fields(line)
	if len(words) != 2 || words[0] != "make" || !strings.HasPrefix(words[1], "image-") {
		return fmt.Errorf("a step isn't a target of image.mk: %q", line)
	}
	cmd := exec.CommandContext(s.ctx, words[0], words[1])
	cmd.Dir = filepath.Join(s.root, s.workdir)
	cmd.Env = append(slices.Clone(s.env), "MAKEFLAGS=-s", "PATH="+os.Getenv("PATH"), "HOME="+os.Getenv("HOME"), "CUDA_HOME="+os.Getenv("CUDA_HOME"))
	for _, name := range []string{"GOPATH", "GOCACHE", "GOMODCACHE", "GOPROXY", "GOSUMDB", "GOTOOLCHAIN"} {
		if value, set := os.LookupEnv(name); set {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	s.shown("%s:\n%s", line, out)
	return nil
}

// copyAll copies files from the repository or from another stage.
func (s *stage) copyAll(c *instructions.CopyCommand) error {
	from, ignore := repository, s.ignore
	if c.From != "" {
		from, ignore = filepath.Join(s.dir, c.From), nil
		if _, err := os.Stat(from); err != nil {
			return fmt.Errorf("there is no stage %s before this one", c.From)
		}
	}
	dest := filepath.Join(s.root, s.workdir, c.DestPath)
	if filepath.IsAbs(c.DestPath) {
		dest = filepath.Join(s.root, c.DestPath)
	}
	for _, source := range c.SourcePaths {
		into := dest
		info, err := os.Stat(filepath.Join(from, source))
		if err != nil {
			return err
		}
		if !info.IsDir() && (strings.HasSuffix(c.DestPath, "/") || len(c.SourcePaths) > 1) {
			into = filepath.Join(dest, filepath.Base(source))
		}
		copied, err := copyTree(from, source, into, ignore)
		if err != nil {
			return err
		}
		if copied == 0 {
			return fmt.Errorf("%s has no files that .dockerignore permits", source)
		}
	}
	return nil
}

// copyTree copies a file or the contents of a folder with the file times. It returns the number of files.
func copyTree(from, source, into string, ignore *patternmatcher.PatternMatcher) (copied int, err error) {
	err = filepath.WalkDir(filepath.Join(from, source), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if ignore != nil {
			if out, err := ignore.MatchesOrParentMatches(name); err != nil || out {
				return err
			}
		}
		below, err := filepath.Rel(filepath.Join(from, source), path)
		if err != nil {
			return err
		}
		target := filepath.Join(into, below)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		copied++
		return exec.Command("cp", "--archive", "--no-target-directory", path, target).Run()
	})
	return copied, err
}
