package audit

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
)

// Source is one log.
type Source struct {
	Name string
	Size int64 // in bytes as it is stored, for progress; 0: not known
	// Open opens it; it is opened when its turn comes and closed before the next.
	Open func() (io.ReadCloser, error)
}

const (
	maxLine   = 16 << 20  // bytes; longer lines are skipped and counted
	blockSize = 512 << 10 // bytes of lines that are parsed together
)

// block is some lines of a source.
type block struct {
	source int
	first  int64   // number of its first line
	text   []byte  // whole lines; one that was too long is empty
	long   []int64 // numbers of the lines that were too long
}

// packed are the ways to pack a file that are recognised, and what unpacks them.
var packed = []struct{ magic, name, unpack string }{
	{"\x28\xb5\x2f\xfd", "zstd", "zstd -dc"},
	{"\xfd7zXZ", "xz", "xz -dc"},
	{"BZh", "bzip2", "bzip2 -dc"},
	{"PK\x03\x04", "zip", "unzip -p"},
}

// counter counts the bytes that are read.
type counter struct {
	io.Reader
	n *atomic.Int64
}

func (c counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// unpacked sees through gzip and leaves a byte order mark out.
func unpacked(r io.Reader, name string) (*bufio.Reader, error) {
	in := bufio.NewReaderSize(r, 256<<10)
	magic, err := in.Peek(6)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	for _, p := range packed {
		if bytes.HasPrefix(magic, []byte(p.magic)) {
			return nil, fmt.Errorf("it is packed by %s; run %s %s | worker audit -", p.name, p.unpack, name)
		}
	}
	if bytes.HasPrefix(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, err
		}
		in = bufio.NewReaderSize(z, 256<<10)
	}
	if mark, _ := in.Peek(3); string(mark) == "\xef\xbb\xbf" {
		_, _ = in.Discard(3) // they are buffered
	}
	return in, nil
}

// blocks cuts a source into blocks. Its error says how far it came; what was read until then
// is emitted, but not the line at which it broke off.
func (s Source) blocks(ctx context.Context, source int, read *atomic.Int64, emit func(block) error) (err error) {
	c := cutter{first: 1, source: source, emit: emit}
	defer func() {
		if err != nil && ctx.Err() == nil {
			err = fmt.Errorf("PO561 %s breaks off after line %d, and what comes before it is counted: %w", s.Name, c.first-1+c.lines, err)
		}
	}()
	f, err := s.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	in, err := unpacked(counter{f, read}, s.Name)
	if err != nil {
		return err
	}
	return c.all(ctx, in)
}

// cutter gathers the lines of a source.
type cutter struct {
	source int
	emit   func(block) error

	first   int64 // number of the first line in text
	text    []byte
	lines   int64 // whole lines in text
	whole   int   // bytes of them
	skip    bool  // until the end of a line that is too long
	tooLong []int64
}

func (c *cutter) all(ctx context.Context, in *bufio.Reader) error {
	for {
		frag, err := in.ReadSlice('\n')
		if !c.skip {
			c.text = append(c.text, frag...)
		}
		switch {
		case err == nil:
			c.endLine()
		case errors.Is(err, bufio.ErrBufferFull):
			if len(c.text)-c.whole > maxLine {
				c.text, c.skip = c.text[:c.whole], true
				c.tooLong = append(c.tooLong, c.first+c.lines)
			}
			continue
		case errors.Is(err, io.EOF):
			if c.skip || len(c.text) > c.whole {
				c.endLine()
			}
			return c.flush()
		default:
			c.text = c.text[:c.whole]
			return errors.Join(c.flush(), err)
		}
		if len(c.text) >= blockSize {
			if err := c.flush(); err != nil {
				return err
			}
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
	}
}

func (c *cutter) endLine() {
	if c.skip {
		c.text, c.skip = append(c.text, '\n'), false
	}
	c.lines++
	c.whole = len(c.text)
}

func (c *cutter) flush() error {
	if c.lines == 0 {
		return nil
	}
	b := block{c.source, c.first, c.text, c.tooLong}
	c.first, c.lines, c.whole = c.first+c.lines, 0, 0
	c.text, c.tooLong = make([]byte, 0, blockSize+64<<10), nil
	return c.emit(b)
}
