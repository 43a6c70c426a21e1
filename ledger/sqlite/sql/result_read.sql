-- tenant, job, generation
select id, schema_name, body from paidonce_result where tenant = ? and job = ? and generation = ?
