"""The configuration's version counter, and the triggers that move it."""

from django.db import migrations

# Any change of these tables counts: they are small and seldom written.
TABLES = ("accounts_organisation", "accounts_apikey", "accounts_member", "inference_modelversion", "inference_deployment")

FORWARD = """
INSERT INTO inference_configuration (id, version) VALUES (true, 1);
CREATE FUNCTION inference_configuration_moved() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE inference_configuration SET version = version + 1;
    RETURN NULL;
END $$;
""" + "".join(
    f"CREATE TRIGGER {table}_moves_configuration AFTER INSERT OR UPDATE OR DELETE ON {table}"
    " FOR EACH STATEMENT EXECUTE FUNCTION inference_configuration_moved();\n"
    for table in TABLES
)
REVERSE = (
    "".join(f"DROP TRIGGER {table}_moves_configuration ON {table};\n" for table in TABLES)
    + "DROP FUNCTION inference_configuration_moved();\nDELETE FROM inference_configuration;"
)


class Migration(migrations.Migration):
    dependencies = [("inference", "0001_initial"), ("accounts", "0001_initial")]
    operations = [migrations.RunSQL(FORWARD, REVERSE)]
