-- tenant, job, body
insert into paidonce_input (tenant, job, body) values (?, ?, ?)
