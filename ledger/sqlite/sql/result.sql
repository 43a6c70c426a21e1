-- tenant, job, generation, id, schema, body
insert into paidonce_result (tenant, job, generation, id, schema_name, body) values (?, ?, ?, ?, ?, ?)
