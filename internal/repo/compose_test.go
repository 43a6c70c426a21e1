package repo

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// composeFile is what the checks need of docker-compose.yml.
type composeFile struct {
	Services map[string]service
	Volumes  map[string]any
}

type service struct {
	Image       string
	Build       string
	Ports       []string
	Volumes     []string
	Profiles    []string
	Privileged  bool
	Healthcheck *struct{ Test []string }
	DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
}

func readCompose(text string) (composeFile, error) {
	var c composeFile
	err := yaml.Unmarshal([]byte(text), &c)
	return c, err
}

func TestCompose(t *testing.T) {
	c, err := readCompose(read(t, "docker-compose.yml"))
	if err != nil {
		t.Fatalf("docker-compose.yml: %v", err)
	}
	for _, name := range []string{"postgres", "rabbitmq", "sqs", "worker", "test"} {
		if _, ok := c.Services[name]; !ok {
			t.Errorf("docker-compose.yml has no service %s", name)
		}
	}
	for _, b := range checkCompose(c) {
		t.Error("docker-compose.yml: " + b)
	}
	if c.Services["sqs"].Image != "${AWS_EMULATOR_IMAGE:-localstack/localstack:4.14.0}" {
		t.Errorf("image of sqs is %s: it is the last LocalStack that starts without a token, and can be replaced by a variable", c.Services["sqs"].Image)
	}
}

// checkCompose says what is wrong with the services.
func checkCompose(c composeFile) []string {
	var bad []string
	for name, s := range c.Services {
		say := func(format string, args ...any) {
			bad = append(bad, "service "+name+": "+fmt.Sprintf(format, args...))
		}
		if s.Build == "" && !pinned(s.Image) {
			say("image %q is not pinned to a version", s.Image)
		}
		if s.Privileged {
			say("is privileged")
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") {
				say("port %s is open beyond loopback", p)
			}
		}
		for _, v := range s.Volumes {
			if why := badMount(c, v); why != "" {
				say("volume %s %s", v, why)
			}
		}
		if len(s.Ports) > 0 && s.Build == "" && s.Healthcheck == nil {
			say("has ports and no health check: nothing can wait for it") // ours brings one in its image
		}
		for on, d := range s.DependsOn {
			switch target, ok := c.Services[on]; {
			case !ok:
				say("depends on %s, which is not there", on)
			case d.Condition == "service_healthy" && target.Build == "" && target.Healthcheck == nil:
				say("waits for the health of %s, which has no health check", on)
			case d.Condition == "" || d.Condition == "service_started":
				say("depends on %s without waiting until it is ready", on)
			}
		}
	}
	slices.Sort(bad)
	return bad
}

var version = regexp.MustCompile(`:[a-z-]*[0-9]+\.[0-9]+[a-z0-9.-]*$|@sha256:[0-9a-f]{64}$`)

// pinned reports whether an image names a version, also as the default of a variable.
func pinned(image string) bool {
	if v, ok := strings.CutPrefix(image, "${"); ok {
		_, image, _ = strings.Cut(strings.TrimSuffix(v, "}"), ":-")
	}
	return version.MatchString(image)
}

// badMount says why a volume may not be mounted; "" if it may.
func badMount(c composeFile, v string) string {
	from, to, _ := strings.Cut(v, ":")
	path, mode, _ := strings.Cut(to, ":")
	switch {
	case strings.Contains(v, "docker.sock"):
		return "hands over the host"
	case strings.HasPrefix(from, "."):
		if _, err := os.Stat(filepath.Join(root, from)); err != nil {
			return "is not in the repository"
		}
		if mode != "ro" {
			return "lets the container write into the repository"
		}
	case strings.HasPrefix(from, "/") || strings.HasPrefix(from, "~"):
		return "is a folder of the host"
	default:
		if _, ok := c.Volumes[from]; !ok {
			return "is not declared under volumes"
		}
	}
	if !strings.HasPrefix(path, "/") {
		return "has no target"
	}
	return ""
}

func TestCheckComposeFinds(t *testing.T) {
	c, err := readCompose(`
services:
  a: { image: localstack/localstack:latest, ports: ["5432:5432"] }
  b: { image: "${X:-redis}", healthcheck: { test: [CMD, "true"] }, volumes: ["/var/run/docker.sock:/s", "./nowhere:/x:ro", "./docs:/x", "/etc:/x:ro", "loose:/x"] }
  c: { image: redis:7.4.1, privileged: true, depends_on: { a: { condition: service_healthy }, b: { condition: service_started }, z: { condition: service_healthy } } }
  d: { image: redis:7.4.1, ports: ["127.0.0.1:1:1"], healthcheck: { test: [CMD, "true"] }, volumes: ["kept:/x"], depends_on: { b: { condition: service_healthy } } }
volumes: { kept: }
`)
	if err != nil {
		t.Fatal(err)
	}
	got := checkCompose(c)
	for _, want := range []string{
		"a: image \"localstack/localstack:latest\" is not pinned", "a: port 5432:5432 is open", "a: has ports and no health check",
		"b: image \"${X:-redis}\" is not pinned", "docker.sock:/s hands over", "./nowhere:/x:ro is not in", "./docs:/x lets", "/etc:/x:ro is a folder", "loose:/x is not declared",
		"c: is privileged", "c: waits for the health of a", "c: depends on b without waiting", "c: depends on z, which is not there",
	} {
		if i := slices.IndexFunc(got, func(g string) bool { return strings.Contains(g, want) }); i < 0 {
			t.Errorf("nobody said %q", want)
		} else {
			got = slices.Delete(got, i, i+1)
		}
	}
	if len(got) > 0 {
		t.Errorf("too much was said: %q", got)
	}
}

// TestDockerfile: versions are pinned, the program gets its signals, and what it
// is built from reaches the builder.
func TestDockerfile(t *testing.T) {
	text := read(t, "Dockerfile")
	from := regexp.MustCompile(`(?m)^FROM (\S+)`).FindAllStringSubmatch(text, -1)
	if len(from) != 2 {
		t.Fatalf("Dockerfile has %d stages, want one that builds and one that runs", len(from))
	}
	if !pinned(from[0][1]) {
		t.Errorf("image %s is not pinned to a version", from[0][1])
	}
	if want := "gcr.io/distroless/static-debian12:nonroot"; !strings.HasPrefix(from[1][1], want) {
		t.Errorf("the program runs in %s, want %s: no shell, not root", from[1][1], want)
	}
	for _, instruction := range []string{"ENTRYPOINT", "CMD"} {
		if !regexp.MustCompile(`(?m)^` + instruction + ` \["`).MatchString(text) {
			t.Errorf("%s is not in exec form: a shell would swallow SIGTERM", instruction)
		}
	}
	ignore := strings.Split(read(t, ".dockerignore"), "\n")
	for _, path := range goFiles(t) {
		top, _, nested := strings.Cut(path, "/")
		if nested && !isTest(path) && !slices.Contains(ignore, "!"+top) {
			t.Errorf("%s would not reach the image's builder: add !%s to .dockerignore", path, top)
			break
		}
	}
}
