//go:build !race

package simulate

const raced = false
