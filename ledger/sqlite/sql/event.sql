-- tenant, job, number, at, from, to, actor, reason
insert into paidonce_event (tenant, job, n, at, from_state, to_state, actor, reason) values (?, ?, ?, ?, ?, ?, ?, ?)
