-- tenant, job, number, at, from, to, actor, reason, looks
insert into paidonce_event (tenant, job, n, at, from_state, to_state, actor, reason, looks) values (?, ?, ?, ?, ?, ?, ?, ?, ?)
