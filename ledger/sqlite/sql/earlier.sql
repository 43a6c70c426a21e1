-- The results of a job's earlier generations.
-- tenant, job, the present generation
select generation, id, schema_name, body from paidonce_result where tenant = ? and job = ? and generation < ? order by generation
