-- Unknown jobs of each action, of all tenants.
select action, count(*), min(unknown_at) from paidonce_job where state in ('ready', 'running', 'unknown') and state = 'unknown' group by action order by action
