//go:build race

package simulate

// raced: the race detector has the runtime run goroutines in random order.
const raced = true
