-- tenant, job, token, at
insert into paidonce_rerun (tenant, job, token, at) values (?, ?, ?, ?)
