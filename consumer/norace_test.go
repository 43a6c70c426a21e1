//go:build !race

package consumer_test

// roomOfRace is what the race detector adds to the frames below a call.
const roomOfRace = 0
