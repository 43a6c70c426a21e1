// Package jitter is where the consumer and the calls take chance from: how much longer than needed they wait, so that many do not
// come back at once. It is one place so that a simulation can decide it.
package jitter

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// source is what a simulation has put in place of chance; nil: nothing.
var source atomic.Pointer[func(below int64) int64]

// Below is a random duration from 0, which it may be, up to and without d. It panics unless d is positive.
func Below(d time.Duration) time.Duration {
	if d <= 0 {
		panic("jitter: not below " + d.String())
	}
	if f := source.Load(); f != nil {
		return time.Duration((*f)(int64(d)))
	}
	return time.Duration(rand.Int64N(int64(d)))
}

// Quarter is d and up to a quarter more.
func Quarter(d time.Duration) time.Duration { return d + Below(d/4+1) }

// Decide puts f in the place of chance in the whole process, until the returned function is called. f is given the exclusive upper
// bound. It is for simulations alone.
func Decide(f func(below int64) int64) (undo func()) {
	source.Store(&f)
	return func() { source.Store(nil) }
}
