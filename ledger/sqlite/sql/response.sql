-- tenant, job, attempt, codec, body
insert into paidonce_response (tenant, job, attempt, codec, body) values (?, ?, ?, ?, ?)
