// Package assist has the page by which programs that spin give the processor to a device. A device has a
// thread for each processor, its helpers, which sleep until somebody on the same processor wakes them: a
// program of the device that has rung a doorbell, by libsoftmkey-run.so, or another device that has put packets
// into a ring between them.
//
// The page has a line for each processor. Only the device writes to it; all others map it for reading, which is
// enough to wake a thread that waits for a word (futex(2), FUTEX_WAKE). Whoever wakes a helper writes his
// doorbell first, and then reads the line. The helper writes the line first, and then reads the doorbells. So at
// least one of them sees the other's store: a doorbell is either found, or wakes the helper. One case is left:
// the helper has said that it sleeps, and has looked, and does not wait yet. FUTEX_WAKE then wakes nobody, and
// says so; a program tries again at its next look for a completion, and a device looks once more after it has woken
// others.
//
// Helpers are for requests one at a time. While a device moves a stream, or has a processor without programs, its own
// thread polls. The first words of the page say so, and nobody wakes helpers then, nor while a helper works: it looks
// once more after it has said that it works no more. A program that posts many requests between two looks wakes a
// thread of the device whose line is there, too: a stream begins.
//
// Where other threads want the processors, a program sleeps instead of spinning. It waits for a word of the page that
// counts the device's work, for a fraction of a millisecond at most. By one more line of the page it tells the device
// that it sleeps, so that the device wakes it after work.
package assist
