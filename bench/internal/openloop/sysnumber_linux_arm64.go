package openloop

// sysSchedSetattr is sched_setattr, which package syscall hasn't.
const sysSchedSetattr = 274
