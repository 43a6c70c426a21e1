package app

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/paidonce/paidonce/cmd/worker/demo"
)

// version is the module's, with the commit of a build from a checkout.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return info.Main.Version
}

type versionDocument struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

// Run says which version this is.
func (v versionCommand) Run(c *call) error {
	d := versionDocument{version(), runtime.Version(), runtime.GOOS, runtime.GOARCH}
	return show(c, v.asJSON, d, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "worker %s (%s, %s/%s)\n", d.Version, d.Go, d.OS, d.Arch)
		return err
	})
}

// Run tells the story of paidonce. It reads no configuration: nothing that is
// configured here can be hurt by it.
func (demoCommand) Run(c *call) error { return demo.Run(c.ctx, c.Stdout) }
